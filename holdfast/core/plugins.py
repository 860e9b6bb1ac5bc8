"""Plug-ins: anchors, allocation rules and stream sources that others add.

Installed packages add them by entry points; a program, such as a notebook, registers mechanisms for
its own process.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from holdfast.core.errors import HoldfastError, described
from holdfast.core.mechanisms import ALIASES, BY_TAG, VANILLA

ANCHOR_GROUP, ALLOCATION_GROUP = "holdfast.anchors", "holdfast.allocations"
STREAMS = "holdfast.streams"

_registered: dict[str, dict[str, Any]] = {}  # in this process, by group and name


def register(group: str, name: str, kind: object, base: type) -> None:
    """Add a mechanism's class to a group for this process; the same name again replaces it.

    Raises HoldfastError if it does not inherit ``base``, or for a name that is taken or cannot
    stand in a method's tag.
    """
    if not (isinstance(kind, type) and issubclass(kind, base)):
        raise HoldfastError(f"{kind!r:.60} is no {base.__name__}; give a class that inherits it")
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name):
        raise HoldfastError(
            f'"{name}" cannot stand in a method\'s tag; use lower-case letters, digits and "_"'
        )
    packaged = {entry.name for entry in (*installed(ANCHOR_GROUP), *installed(ALLOCATION_GROUP))}
    elsewhere = [kinds for other, kinds in _registered.items() if other != group]
    if name in {VANILLA, *BY_TAG, *ALIASES, *packaged}.union(*elsewhere):
        raise HoldfastError(f'"{name}" is the name of a mechanism already; choose another one')
    _registered.setdefault(group, {})[name] = kind


def names_added(group: str) -> set[str]:
    """The names that installed packages and this process add to a group."""
    return {entry.name for entry in installed(group)} | _registered.get(group, {}).keys()


@cache
def installed(group: str) -> tuple[EntryPoint, ...]:
    """The entry points of a group; the scan of all installed packages takes 10 ms."""
    return tuple(entry_points(group=group))


class Added(Mapping[str, Any]):
    """The entries of a group by name: Holdfast's own first, then those that are added.

    A plug-in is loaded on access, so that a broken one, which raises HoldfastError, stops only what
    uses it. Raises HoldfastError at once if a plug-in has the name of one of Holdfast's own.
    """

    def __init__(self, built_in: Mapping[str, Any], group: str) -> None:
        self._built_in, self._group = built_in, group
        self._packaged = {entry.name: entry for entry in installed(group)}
        for name, entry in self._packaged.items():
            if name in built_in:
                raise HoldfastError(
                    f"entry point {group}:{name} of {entry.value} hides one of holdfast's own; "
                    "the package that defines it must rename it"
                )

    def __getitem__(self, name: str) -> Any:
        registered = _registered.get(self._group, {})
        if name in registered:
            return registered[name]
        if name in self._packaged:
            return loaded(self._group, self._packaged[name])
        return self._built_in[name]

    def __contains__(self, name: object) -> bool:  # without loading it
        return name in list(self)

    def __iter__(self) -> Iterator[str]:
        return iter([*self._built_in, *self._packaged, *_registered.get(self._group, {})])

    def __len__(self) -> int:
        return len(list(iter(self)))


def loaded(group: str, entry: EntryPoint) -> Any:
    """The object that an entry point names; HoldfastError, with its package, if that fails."""
    try:
        return entry.load()
    except Exception as error:  # importing a plug-in may raise anything
        package = entry.dist.name if entry.dist is not None else "the package that defines it"
        raise HoldfastError(
            f"entry point {group}:{entry.name} of {entry.value} cannot be loaded "
            f"({described(error)}); repair or uninstall {package}"
        ) from error


def plug_in_of(error: BaseException) -> str | None:
    """The installed plug-in whose code raised an error (package, file, line), if there is one."""
    groups = (ANCHOR_GROUP, ALLOCATION_GROUP, STREAMS)
    entries = (entry for group in groups for entry in installed(group))
    packages = {entry.module.partition(".")[0] for entry in entries} - {"holdfast"}
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package in packages:
            return f"{package} ({frame.f_code.co_filename} line {line})"
    return None
