"""Allocation rules: where low-rank updates go. By the names that a method's tag uses.

A package adds its own through the entry-point group ``holdfast.allocations``.
"""

from holdfast.allocation.base import Allocation, Closing, Factors, Opening, State, Workspace
from holdfast.allocation.merge import Merged
from holdfast.allocation.olora import OLoRA
from holdfast.allocation.osrm import SequentialOSRM
from holdfast.allocation.shared import Shared
from holdfast.core import plugins
from holdfast.core.config import Config

__all__ = [
    "ALLOCATIONS",
    "Allocation",
    "Closing",
    "Config",
    "Factors",
    "Opening",
    "State",
    "Workspace",
    "register",
]

#: The built-in allocation rules, by the names in a method's tag.
ALLOCATIONS: dict[str, type[Allocation]] = {
    "shared": Shared,
    "merge": Merged,
    "olora": OLoRA,
    "osrm": SequentialOSRM,
}


def register(name: str, kind: type[Allocation]) -> None:
    """Make an allocation rule known in this process, as a notebook does that defines one in a cell.

    name: in a method's tag; a name that was registered before then means the new class. Other
    processes, such as the workers of a study, know what a package declares as an entry point.
    Raises HoldfastError for what is no rule, and a name that is taken or that no tag can have.
    """
    plugins.register(plugins.ALLOCATIONS, name, kind, Allocation)
