"""Studies that run from a clone of the repository; the package does not contain them."""
