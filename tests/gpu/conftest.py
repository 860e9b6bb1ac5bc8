"""The pretended GPU, for every test of this room that asks for it."""

from tests.gpu.pretended import gpu

__all__ = ["gpu"]
