"""Long tests of what survives: kills at random times, and damage to files. `make soak`."""
