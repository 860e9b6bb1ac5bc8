"""Allocation rules: where low-rank updates go. By the names that a method's tag uses.

A package adds its own through the entry-point group ``holdfast.allocations``.
"""

from holdfast.allocation.base import Allocation, Closing, Opening
from holdfast.allocation.merged import Merged
from holdfast.allocation.o_lora import OLoRA
from holdfast.allocation.sequential_osrm import SequentialOSRM
from holdfast.allocation.shared import Shared
from holdfast.core.config import Config

__all__ = ["ALLOCATIONS", "Allocation", "Closing", "Config", "Opening"]

#: The built-in allocation rules, by the names in a method's tag.
ALLOCATIONS: dict[str, type[Allocation]] = {
    "shared": Shared,
    "merge": Merged,
    "olora": OLoRA,
    "osrm": SequentialOSRM,
}
