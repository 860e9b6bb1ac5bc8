"""The progress of one cell: tasks learned, messages of its worker, lost workers."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.studies.cell import Cell, Outcome
from holdfast.studies.executor import Watch


@dataclass(eq=False)
class Job:
    """The progress of one cell within one ``Executor.map``.

    began: time of the first start, in perf_counter seconds; begin, reached: number of tasks
    learned before this call, and by now; losses: how many of its workers were lost.
    """

    cell: Cell
    directory: Path
    began: float | None = None
    begin: int | None = None
    reached: int = 0
    losses: int = 0

    def order(self) -> dict[str, Any]:
        """The message that tells a worker to advance this cell, as JSON values.

        folder: the directory that the configuration's relative paths start from; track: the
        tracker, the run's name there and its group, or None.
        """
        tracker, seed = self.cell.tracker, self.cell.config.seed
        named = {"name": f"{self.cell.candidate} seed {seed}"}
        return {
            "config": self.cell.config.model_dump(mode="json"),
            "horizon": self.cell.horizon,
            "directory": str(self.directory.absolute()),
            "folder": os.getcwd(),
            "track": tracker and {"tracker": tracker.name, "group": tracker.group, **named},
        }

    def starts(self, watch: Watch) -> None:
        """Record and report that a worker has started the cell."""
        self.began = self.began or time.perf_counter()
        watch.started(self.cell)

    def hears(self, message: Mapping[str, Any], watch: Watch) -> Outcome | None:
        """Process a message from its worker; return the outcome if it was the final one."""
        told = message["told"]
        if told == "opened":
            self._opened(message["horizon"], watch)
        elif told == "task":
            self.reached = message["task"]
            watch.task_done(self.cell, message["task"])
        elif told == "event":
            watch.event(self.cell, message["text"])
        elif told == "finished":
            if message["horizon"] is not None:
                self.begin = message["horizon"] if self.begin is None else self.begin
                self.reached = message["horizon"]
            return self._outcome(message["error"])
        return None

    def lost(self, how: str, words: str, retries: int, watch: Watch) -> Outcome | None:
        """Record a lost worker: return None to retry, the outcome after more than ``retries``.

        how: the way the worker ended; words: the end of its output.
        """
        self.losses += 1
        if self.losses <= retries:
            watch.event(self.cell, f"lost its worker ({how}); begins again where it stood")
            return None
        watch.event(self.cell, f"lost its worker ({how}); given up")
        times = "once" if self.losses == 1 else f"{self.losses} times"
        said = f"; it said last: {words}" if words else ""
        return self._outcome(f"lost its worker {times}, the last time {how}{said}")

    def _opened(self, horizon: int, watch: Watch) -> None:
        if self.begin is None:
            self.begin = horizon
        else:  # the lost worker may have committed tasks without reporting them
            for task in range(self.reached + 1, horizon + 1):
                watch.task_done(self.cell, task)
        self.reached = horizon

    def _outcome(self, error: str | None) -> Outcome:
        seconds = 0.0 if self.began is None else time.perf_counter() - self.began
        return Outcome(self.cell, self.reached - (self.begin or 0), seconds, error)


def due(waiting: Iterable[Job], busy: Iterable[Job]) -> list[Job]:
    """The waiting cells that may start, in the order given: one at a time per trajectory."""
    taken = {job.directory for job in busy}
    free = []
    for job in waiting:
        if job.directory not in taken:
            taken.add(job.directory)
            free.append(job)
    return free
