"""A language model by its name: fetched, converted once, kept in a cache, loaded."""
