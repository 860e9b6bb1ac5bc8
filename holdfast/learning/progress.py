"""Progress reports of learning, and a stopwatch by phase."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.results import RecallMatrix


class Progress:
    """Receives progress reports. This class ignores them; the command line draws bars."""

    def step(self, phase: str, task: int, done: int, total: int) -> None:
        """``done`` of ``total`` units of a task's phase are done; the only phase is training."""

    def task_done(self, task: int, horizon: int, matrix: RecallMatrix) -> None:
        """Task ``task`` of ``horizon`` is learned and committed; matrix: recall so far."""

    def event(self, text: str) -> None:
        """A one-line message for the user."""


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
