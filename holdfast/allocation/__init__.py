"""The built-in allocation rules by their names in a method's tag, and what new rules need.

A package adds its own through the entry-point group ``holdfast.allocations``.
"""

from holdfast.allocation.base import Allocation, Closing, Opening, State, Workspace
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
    """Register an allocation rule in this process, for example one that a notebook defines.

    name: its name in a method's tag; a name that was registered before gets the new class. Other
    processes, such as the workers of a study, know a plug-in only by its entry point.
    Raises HoldfastError if ``kind`` is no rule, or the name is taken or impossible in a tag.
    """
    plugins.register(plugins.ALLOCATION_GROUP, name, kind, Allocation)
