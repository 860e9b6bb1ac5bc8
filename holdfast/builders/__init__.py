"""Stream builders: question generators, published question sets, and the models they query."""
