"""Progress: bars with an estimate of the time left on a terminal, else one line per task."""

from __future__ import annotations

import gc
import math
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bars

from holdfast.cli.printing import SafeConsole
from holdfast.core.collecting import garbage_collection_paused
from holdfast.core.reporting import NoteReport
from holdfast.learning.progress import Clock, Pace, Progress, TaskLines, recalled
from holdfast.results import RecallMatrix
from holdfast.results.record import completed_in

_SECONDS_PER_LINE = 10.0


class TaskBars(Progress):
    """For a terminal: a bar for the tasks and one for the phase of the current task."""

    def __init__(self, label: str, learned: int, horizon: int, pace: Pace, bars: Bars) -> None:
        self._bars = bars
        self._pace = pace
        label = escape(label)
        total = max(learned, horizon)
        self._tasks = bars.add_task(label, total=total, completed=learned, note="", pace=pace)
        self._phase = bars.add_task("  loading", total=None, note="", pace="")
        self._current = ("", 0)

    def event(self, text: str) -> None:
        self._bars.console.print(text, markup=False, highlight=False)

    def step(self, phase: str, task: int, done: int, total: int) -> None:
        if self._current != (phase, task):
            self._current = (phase, task)
            self._bars.reset(self._phase, description=f"  task {task}", note=phase, pace="")
        self._bars.update(self._phase, total=total, completed=done)

    def task_done(self, task: int, horizon: int, matrix: RecallMatrix) -> None:
        self._pace.reached(task, horizon)
        self._bars.update(self._tasks, total=horizon, completed=task, note=recalled(matrix))


@contextmanager
def showing(label: str, learned: int, horizon: int, directory: Path) -> Iterator[Progress]:
    """Show the progress from ``learned`` to ``horizon`` tasks during the block.

    A KeyboardInterrupt gets a note with the number of tasks that ``directory`` has committed.
    """
    console = SafeConsole(stderr=True)
    pace = Pace(learned)
    try:
        if console.is_terminal:
            with bars_on(console) as bars:
                yield TaskBars(label, learned, horizon, pace, bars)
        else:
            yield TaskLines(label, pace)
    except KeyboardInterrupt as stop:
        stop.add_note(f"{completed_in(directory)} of {horizon} tasks are kept")
        raise


def bars_on(console: Console) -> Bars:
    """Progress bars, removed from the screen when they end."""
    return Bars(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("[dim]{task.fields[note]}"),
        TextColumn("[cyan]{task.fields[pace]}"),  # counts down between two tasks
        console=console,
        transient=True,
        refresh_per_second=4,
    )


@contextmanager
def loading(label: str = "loading torch") -> Iterator[None]:
    """During the block, show a status line on a terminal, and pause garbage collection."""
    console = SafeConsole(stderr=True)
    status = console.status(label) if console.is_terminal else nullcontext()
    with garbage_collection_paused(), status:
        yield
        gc.freeze()  # libraries stay until the command ends: later collections skip them


@contextmanager
def counting(
    label: str, clock: Clock = time.monotonic, *, at_once: bool = False
) -> Iterator[NoteReport]:
    """Yield a function (done, total, note) that draws a bar, or prints a line every few seconds.

    at_once: print the first line at once.
    """
    console = SafeConsole(stderr=True)
    pace = Pace(clock=clock)
    last_line_at = -math.inf if at_once else clock()
    last: tuple[int, int, str] | None = None

    def line(done: int, total: int, note: str) -> None:
        nonlocal last_line_at, last
        pace.reached(done, total)
        # All is told at once, but not with every step of a lesson that goes on with all right.
        ended = done >= total and last != (done, total, note)
        last = (done, total, note)
        if clock() - last_line_at >= _SECONDS_PER_LINE or ended:
            last_line_at = clock()
            parts = [f"{done} of {total}", note, str(pace)]
            print(f"{label}: {', '.join(filter(None, parts))}", file=sys.stderr, flush=True)

    if not console.is_terminal:
        yield line
        return
    with bars_on(console) as bars:
        bar = bars.add_task(escape(label), total=None, note="", pace=pace)

        def draw(done: int, total: int, note: str) -> None:
            pace.reached(done, total)
            bars.update(bar, completed=done, total=total, note=escape(note))

        yield draw


class WorkBars(ExitStack):
    """A progress bar on standard error for each piece of work that is reported."""

    _label: str | None = None
    _draw: NoteReport

    def __call__(self, label: str, done: int, total: int) -> None:
        if label != self._label:
            self.close()
            self._label = label
            self._draw = self.enter_context(counting(label))
        self._draw(done, total, "")

    def close(self) -> None:
        """End the bar that is shown; the next report begins one."""
        super().close()
        self._label = None
