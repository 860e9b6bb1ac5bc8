"""Studies that are run from a clone of the repository; nothing of them is in the package."""
