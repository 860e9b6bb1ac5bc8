"""What builds streams: question generators, published sets, and the models that they ask."""
