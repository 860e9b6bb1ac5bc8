"""Holdfast: language models that keep learning, and a measure of what they forget.

The public names are loaded when they are first used, so that importing the package stays light.
"""

import logging
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

# Where it is installed PEFT loads it, and it warns of a faster kernel that nothing here uses.
logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)

if TYPE_CHECKING:
    from holdfast.analysis import read_study as read_study
    from holdfast.core.errors import HoldfastError as HoldfastError
    from holdfast.exports.export import export as export
    from holdfast.learning.config import RunConfig as RunConfig
    from holdfast.learning.mechanism_check import check_mechanism as check_mechanism
    from holdfast.learning.progress import Progress as Progress
    from holdfast.learning.progress import TaskLines as TaskLines
    from holdfast.learning.trajectory import Trajectory as Trajectory
    from holdfast.memory.memory import Memory as Memory
    from holdfast.model.load import load_backbone as load_backbone
    from holdfast.recipes import recipe as recipe
    from holdfast.results import RecallMatrix as RecallMatrix
    from holdfast.streams import Item as Item
    from holdfast.streams import Stream as Stream
    from holdfast.streams import Task as Task
    from holdfast.streams import load_stream as load_stream

__version__ = version("holdfast")

_HOMES = {
    "HoldfastError": "holdfast.core.errors",
    "Item": "holdfast.streams",
    "Memory": "holdfast.memory.memory",
    "Progress": "holdfast.learning.progress",
    "RecallMatrix": "holdfast.results",
    "RunConfig": "holdfast.learning.config",
    "Stream": "holdfast.streams",
    "Task": "holdfast.streams",
    "TaskLines": "holdfast.learning.progress",
    "Trajectory": "holdfast.learning.trajectory",
    "check_mechanism": "holdfast.learning.mechanism_check",
    "export": "holdfast.exports.export",
    "load_backbone": "holdfast.model.load",
    "load_stream": "holdfast.streams",
    "read_study": "holdfast.analysis",
    "recipe": "holdfast.recipes",
}
__all__ = sorted(_HOMES)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
