"""All facts of a memory in one set of weights."""
