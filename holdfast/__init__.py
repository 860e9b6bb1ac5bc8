"""Holdfast: language models that keep learning, and a measure of what they forget.

The public names are loaded when they are first used, so that importing the package stays light.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.core.errors import HoldfastError as HoldfastError
    from holdfast.learning.config import RunConfig as RunConfig
    from holdfast.learning.trajectory import Trajectory as Trajectory
    from holdfast.memory.memory import Memory as Memory
    from holdfast.results import RecallMatrix as RecallMatrix
    from holdfast.streams import load_stream as load_stream

__version__ = version("holdfast")

_HOMES = {
    "HoldfastError": "holdfast.core.errors",
    "Memory": "holdfast.memory.memory",
    "RecallMatrix": "holdfast.results",
    "RunConfig": "holdfast.learning.config",
    "Trajectory": "holdfast.learning.trajectory",
    "load_stream": "holdfast.streams",
}
__all__ = sorted(_HOMES)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
