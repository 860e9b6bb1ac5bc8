"""Progress: bars with an estimate of the time left on a terminal, else one line per task."""

from __future__ import annotations

import gc
import math
import sys
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, Task, TextColumn
from rich.progress import Progress as Bars
from rich.text import Text

from holdfast.core.collecting import nothing_to_collect
from holdfast.learning.progress import Progress
from holdfast.results import RecallMatrix, final
from holdfast.results.commit import completed_in

Clock = Callable[[], float]
_SECONDS_PER_LINE = 10.0


class Pace:
    """Estimate the time left from the pace of the latest quarter of this process's work.

    The quarter has at least three units. The first unit is ignored once there is a second: it
    includes loading the model, and task 1 of a stream has no earlier tasks to preserve.

    done: units done before this process began; None takes the first count that is reported.
    """

    def __init__(self, done: int | None = None, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._marks = [] if done is None else [(done, self._began)]  # (units done, time)
        self._total = 0

    def reached(self, done: int, total: int) -> None:
        """Record that ``done`` of ``total`` units are done."""
        self._total = total
        if not self._marks:
            self._marks.append((done, self._began))
        elif done > self._marks[-1][0]:
            self._marks.append((done, self._clock()))

    @property
    def latest(self) -> float:
        """Seconds between the last two reported counts."""
        return self._marks[-1][1] - self._marks[-2][1]

    def __str__(self) -> str:
        """The time left, in words; empty while unknown, and when nothing remains."""
        if len(self._marks) < 2 or self._marks[-1][0] >= self._total:
            return ""
        done, now = self._marks[-1]
        recent = max(3, (done - self._marks[0][0]) // 4)
        first = 1 if len(self._marks) > 2 else 0
        start = bisect_right(self._marks, done - recent, key=lambda mark: mark[0]) - 1
        before, since = self._marks[max(start, first)]
        each = (now - since) / (done - before)
        left = max(each - (self._clock() - now), 0.0) + each * (self._total - done - 1)
        return f"about {duration(left)} left"


class Lines(Progress):
    """For logs: one line per task."""

    def __init__(self, label: str, pace: Pace) -> None:
        self._label = label
        self._pace = pace

    def event(self, text: str) -> None:
        print(f"{self._label}: {text}", file=sys.stderr, flush=True)

    def task_done(self, task: int, horizon: int, matrix: RecallMatrix) -> None:
        self._pace.reached(task, horizon)
        parts = [f"task {task} of {horizon} in {duration(self._pace.latest)}", recalled(matrix)]
        self.event(", ".join([*parts, *filter(None, [str(self._pace)])]))


class TaskBars(Progress):
    """For a terminal: a bar for the tasks and one for the phase of the current task."""

    def __init__(self, label: str, learned: int, horizon: int, pace: Pace, bars: Bars) -> None:
        self._bars = bars
        self._pace = pace
        label = escape(label)
        self._tasks = bars.add_task(label, total=horizon, completed=learned, note="", pace=pace)
        self._phase = bars.add_task("  loading", total=None, note="", pace="")
        self._shown = ("", 0)

    def event(self, text: str) -> None:
        self._bars.console.print(text, markup=False, highlight=False)

    def step(self, phase: str, task: int, done: int, total: int) -> None:
        if self._shown != (phase, task):
            self._shown = (phase, task)
            self._bars.reset(self._phase, description=f"  task {task}", note=phase, pace="")
        self._bars.update(self._phase, total=total, completed=done)

    def task_done(self, task: int, horizon: int, matrix: RecallMatrix) -> None:
        self._pace.reached(task, horizon)
        self._bars.update(self._tasks, total=horizon, completed=task, note=recalled(matrix))


class _Left(ProgressColumn):
    """A column with the time left, which counts down between two tasks."""

    def render(self, task: Task) -> Text:
        return Text(str(task.fields["pace"]), style="cyan")


def recalled(matrix: RecallMatrix) -> str:
    """The mean recall of all tasks learned so far, in words."""
    share = final(matrix)
    return "recall not measured" if math.isnan(share) else f"recall of all so far {share:.2f}"


def duration(seconds: float) -> str:
    """Format a number of seconds: 8 s, 2:05 min, 3:10 h."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}:{rest:02} min"
    return f"{minutes // 60}:{minutes % 60:02} h"


@contextmanager
def showing(label: str, learned: int, horizon: int, directory: Path) -> Iterator[Progress]:
    """Show progress during the block: bars if standard error is a terminal, else lines.

    learned: tasks done at its start; horizon: tasks done at its end. An interruption gets a note
    on how many the trajectory in ``directory`` has committed.
    """
    console = Console(stderr=True)
    pace = Pace(learned)
    try:
        if console.is_terminal:
            with bars_on(console) as bars:
                yield TaskBars(label, learned, horizon, pace, bars)
        else:
            yield Lines(label, pace)
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
        _Left(),
        console=console,
        transient=True,
        refresh_per_second=4,
    )


@contextmanager
def loading(what: str = "loading torch") -> Iterator[None]:
    """Show a status line on a terminal during the block."""
    console = Console(stderr=True)
    status = console.status(what) if console.is_terminal else nullcontext()
    with nothing_to_collect(), status:
        yield
        gc.freeze()  # libraries stay until the command ends: later collections skip them


@contextmanager
def counting(
    label: str, clock: Clock = time.monotonic
) -> Iterator[Callable[[int, int, str], None]]:
    """Yield a function (done, total, note) that draws a bar, or prints a line every few seconds."""
    console = Console(stderr=True)
    pace = Pace(clock=clock)
    said = clock()

    def line(done: int, total: int, note: str) -> None:
        nonlocal said
        pace.reached(done, total)
        if clock() - said >= _SECONDS_PER_LINE or done >= total:
            said = clock()
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
