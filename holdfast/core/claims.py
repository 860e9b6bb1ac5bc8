"""Claim a directory for some settings: later work there must repeat them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.core.config import differences
from holdfast.core.errors import HoldfastError
from holdfast.core.files import read_json, write_json

_SHOWN = 20  # differing fields shown in a message; studies may differ in hundreds


def claim(path: Path, what: str, settings: Mapping[str, Any]) -> None:
    """Write the settings as JSON to ``path``, or compare them with those already in it.

    what: names the work in the message. Raises HoldfastError when they differ.
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
