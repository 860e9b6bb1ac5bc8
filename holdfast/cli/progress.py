"""Progress on a terminal: bars and an honest time to go; elsewhere one line a task."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bars

from holdfast.learning.progress import Progress
from holdfast.results import RecallMatrix


class Lines(Progress):
    """For logs: one line when a task is done."""

    def __init__(self, label: str) -> None:
        self._label = label

    def event(self, text: str) -> None:
        print(f"{self._label}: {text}", file=sys.stderr, flush=True)

    def task_done(self, task: int, horizon: int, matrix: RecallMatrix) -> None:
        self.event(f"task {task} of {horizon}, {recalled(matrix, task)}")


class Drawn(Progress):
    """For a terminal: a bar for the tasks and one for the steps of the current task."""

    def __init__(self, label: str, bars: Bars) -> None:
        self._bars = bars
        self._began = time.monotonic()
        self._first: int | None = None
        self._tasks = bars.add_task(label, total=None, note="")
        self._steps = bars.add_task("", total=None, note="")

    def event(self, text: str) -> None:
        self._bars.console.print(text)

    def step(self, phase: str, task: int, done: int, total: int) -> None:
        if self._first is None:
            self._first = task - 1
        self._bars.update(
            self._steps, description=f"  task {task}", total=total, completed=done, note=phase
        )

    def task_done(self, task: int, horizon: int, matrix: RecallMatrix) -> None:
        learned = task - (self._first if self._first is not None else task - 1)
        pace = (time.monotonic() - self._began) / max(1, learned)
        # Rows and replay grow with the tasks, so the mean pace is a lower bound at first.
        left = f", about {pace * (horizon - task):.0f} s left" if task < horizon else ""
        note = f"{recalled(matrix, task)}{left}"
        self._bars.update(self._tasks, total=horizon, completed=task, note=note)


def recalled(matrix: RecallMatrix, task: int) -> str:
    """How much of all tasks learned so far is recalled, in words."""
    row = [matrix[task, on_task] for on_task in range(1, task + 1)]
    if any(accuracy != accuracy for accuracy in row):  # not observed
        return "recall not measured"
    return f"recall of all so far {sum(row) / task:.2f}"


@contextmanager
def showing(label: str) -> Iterator[Progress]:
    """Progress for the time of the block, as suits where standard error goes."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield Lines(label)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TextColumn("[dim]{task.fields[note]}"),
    )
    with Bars(*columns, console=console, transient=True) as bars:
        yield Drawn(label, bars)
