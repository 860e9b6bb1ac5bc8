"""A memory: a model that learns facts batch by batch and answers questions."""
