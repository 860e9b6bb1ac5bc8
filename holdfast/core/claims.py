"""Claim a directory for some settings: later work there must repeat them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.core.config import differences
from holdfast.core.errors import HoldfastError
from holdfast.core.files import read_json, write_json

FORMAT = 2  # of config.json and study.json; the first was that of commit 6a3d55a and before
_SHOWN = 20  # differing fields shown in a message; studies may differ in hundreds


def read_format(path: Path) -> Any:
    """Read a JSON file of this format, as it was before :data:`FORMAT` was added to it.

    Raises HoldfastError for a file of another format, of a missing or a damaged one.
    """
    values = read_json(path)
    if not isinstance(values, dict):
        return values  # whoever reads it says what it should be
    found = values.pop("format", None)
    if found is None and not values.keys() & {"numbers", "study"}:
        return values
    if found != FORMAT:
        which = "commit 6a3d55a reads it, and goes on with it" if found is None else "take a newer"
        raise HoldfastError(f"{path}: was written by another version of Holdfast; {which}")
    return values


def claim(path: Path, what: str, settings: Mapping[str, Any]) -> None:
    """Write the settings as JSON to ``path``, or compare them with those already in it.

    what: names the work in the message. Raises HoldfastError when they differ, or the directory was
    moved since it was locked.
    """
    if path.exists():
        check_same(path.parent, what, read_json(path), settings)
    else:
        write_json(path, dict(settings))


def check_same(place: Path, what: str, recorded: Any, wanted: Mapping[str, Any]) -> None:
    """Raise HoldfastError naming the fields in which two nested JSON values differ."""
    changed = differences(recorded, dict(wanted))
    if changed:
        shown = "; ".join(changed[:_SHOWN]) + ("; ..." if len(changed) > _SHOWN else "")
        raise HoldfastError(
            f"{place}: holds {what} with other settings ({shown}); choose another directory, or "
            "repeat its settings"
        )
