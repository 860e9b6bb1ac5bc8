"""What long work tells whoever watches."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.results import RecallMatrix


class Progress:
    """Hears how far the work is. This one keeps silent; the command line draws bars."""

    def step(self, phase: str, task: int, done: int, total: int) -> None:
        """``done`` of ``total`` units of a phase of a task; the phase is ``training``."""

    def task_done(self, task: int, horizon: int, matrix: RecallMatrix) -> None:
        """Task ``task`` of ``horizon`` is learned and committed; ``matrix`` so far."""

    def event(self, text: str) -> None:
        """Something the user should know, in one line."""


class Stopwatch:
    """Seconds spent, by phase."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time inside the block to a phase."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - begin
            self.seconds[name] = self.seconds.get(name, 0.0) + spent
