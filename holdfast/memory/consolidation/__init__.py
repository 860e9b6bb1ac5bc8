"""Learn all facts of a memory together, into one adapter or into neurons."""
