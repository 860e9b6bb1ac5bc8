"""The paper, written down once more as plainly as possible: slow, short, one file a mechanism.

It holds every equation with torch, transformers, PEFT and `generate`, in whatever dtype the
tensors arrive in. The engine is tested against it and timed against it. It imports nothing from
the package, and the package imports nothing from here. See README.md for the map from equation
to file.
"""
