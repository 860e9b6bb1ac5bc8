"""Processes that teach a memory on a chat model, to be killed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from holdfast.learning.progress import Progress
from holdfast.memory.memory import Memory
from tests.trajectory.children import Child, begin


def start(place: Path, model: Path, cache: Path, facts: Any, **how: Any) -> Child:
    """Let another process teach a memory; how: as for ``tests.trajectory.children.begin``."""
    arguments = (str(place), str(model), str(cache), facts)
    return begin(_teach, arguments, **{"instant": None, "hold": False, **how})


def _teach(place: str, model: str, cache: str, facts: Any, progress: Progress) -> None:
    os.environ["HOLDFAST_CACHE"] = cache  # the process has an environment of its own
    Memory(place, model).learn(
        facts, report=lambda label, done, total: progress.step(label, 1, done, total)
    )
