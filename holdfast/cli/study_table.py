"""Progress of a study: a table of running and failed cells on a terminal, else lines."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from holdfast.cli.printing import SafeConsole
from holdfast.cli.progress import counting
from holdfast.learning.progress import Clock, Pace, duration
from holdfast.studies.executor import Cell, Outcome, Watch

_RUNNING = 16  # rows; further running cells are only counted
_FAILED = 4


@dataclass
class _Running:
    """A running cell. since: its start time; task: the last one learned, 0 before the first."""

    cell: Cell
    since: float
    task: int = 0


class StudyTable(Watch):
    """Counts finished tasks and cells, and failures; ``changed`` is called after each change."""

    def __init__(
        self, label: str, tasks: int, console: Console, clock: Clock = time.monotonic
    ) -> None:
        self.tasks = tasks
        self.learned = self.cells = self.done = 0
        self.running: dict[str, _Running] = {}
        self.failures: list[str] = []
        self.changed: Callable[[], None] = lambda: None
        self._label = label
        self._console = console
        self._clock = clock
        self._pace = Pace(clock=clock)

    def begins(self, cells: int, tasks: int, missing: int) -> None:
        self.learned += tasks - missing
        self.cells, self.done = cells, 0
        self.changed()

    def started(self, cell: Cell) -> None:
        self.running[cell.key] = _Running(cell, self._clock())
        self.changed()

    def task_done(self, cell: Cell, task: int) -> None:
        self.learned += 1
        if cell.key in self.running:
            self.running[cell.key].task = task
        self.changed()

    def finished(self, outcome: Outcome) -> None:
        self.running.pop(outcome.cell.key, None)
        self.done += 1
        if outcome.error is not None:
            self.failures.append(f"{_name(outcome.cell)}: {outcome.error}")
        self.changed()

    def event(self, cell: Cell, text: str) -> None:
        line = f"{self._label}: {_name(cell)}: {text}"
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def counts(self) -> str:
        """Done, running and failed cells, in words."""
        failed = f", {len(self.failures)} failed" if self.failures else ""
        return f"{self.done} of {self.cells} cells done, {len(self.running)} running{failed}"

    def __rich__(self) -> RenderableType:
        learned = min(self.learned, self.tasks)
        self._pace.reached(learned, self.tasks)
        head = Table.grid(padding=(0, 1))
        head.add_row(
            self._label,
            ProgressBar(self.tasks, learned, width=24),
            f"{learned:,} of {self.tasks:,} tasks",
            Text(str(self._pace), style="cyan"),
        )
        rows = Table.grid(padding=(0, 2))
        now = self._clock()
        for active in list(self.running.values())[:_RUNNING]:
            task = f"task {active.task} of {active.cell.horizon}" if active.task else "loading"
            since = Text(duration(now - active.since), "dim")
            rows.add_row("  ", Text(_name(active.cell)), task, since)
        failed = [Text(f"  failed: {line}", "red") for line in self.failures[-_FAILED:]]
        return Group(head, Text("  " + self.counts(), style="dim"), rows, *failed)


@contextmanager
def watching(label: str, tasks: int) -> Iterator[StudyTable]:
    """Show the progress of a study during the block. tasks: its total."""
    console = SafeConsole(stderr=True)
    table = StudyTable(label, tasks, console)
    if console.is_terminal:
        with Live(table, console=console, refresh_per_second=4, transient=True):
            yield table
        return
    with counting(f"{label}, tasks") as report:
        table.changed = lambda: report(min(table.learned, tasks), tasks, table.counts())
        yield table


def _name(cell: Cell) -> str:
    return f"{cell.candidate}, seed {cell.config.seed}"
