"""A memory: facts that a model learns, questions that it is asked, and what can be made of it."""
