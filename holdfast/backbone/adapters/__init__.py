"""Low-rank factors on frozen linear maps, in one flat vector."""
