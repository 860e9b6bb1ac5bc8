"""What takes long to make and no test changes: made once for all workers of a session."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock


def made_once(
    tmp_path_factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]
) -> Path:
    """The directory that ``make(directory)`` has written; tests copy it to change it."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    place = folder / name
    with FileLock(f"{place}.lock"):
        if not place.exists():
            make(folder / f"unfinished-{name}")
            (folder / f"unfinished-{name}").rename(place)
    return place
