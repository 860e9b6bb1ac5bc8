"""Progress: bars with an estimate of the time left on a terminal, else one line per task."""

from __future__ import annotations

import gc
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, Task, TextColumn
from rich.progress import Progress as Bars
from rich.text import Text

from holdfast.core.collecting import nothing_to_collect
from holdfast.learning.progress import Progress
from holdfast.results import RecallMatrix, final

Clock = Callable[[], float]
_SECONDS_PER_LINE = 10.0


class Pace:
    """Estimate of the time that the remaining tasks take, from the last three.

    The first task of a process counts only until there is another: it includes loading the model,
    and task 1 of a stream has no past to preserve.
    """

    def __init__(self, learned: int, horizon: int, clock: Clock = time.monotonic) -> None:
        self._remaining = horizon - learned
        self._clock = clock
        self._since = clock()
        self._seconds: list[float] = []

    def task_done(self) -> float:
        """Note that a task is learned; return its seconds."""
        now = self._clock()
        self._seconds.append(now - self._since)
        self._since = now
        self._remaining -= 1
        return self._seconds[-1]

    def __str__(self) -> str:
        if not self._seconds or self._remaining <= 0:
            return ""
        recent = self._seconds[1:][-3:] or self._seconds
        each = sum(recent) / len(recent)
        left = max(each - (self._clock() - self._since), 0.0) + each * (self._remaining - 1)
        return f"about {duration(left)} left"


class Lines(Progress):
    """For logs: one line per task."""

    def __init__(self, label: str, pace: Pace) -> None:
        self._label = label
        self._pace = pace

    def event(self, text: str) -> None:
        print(f"{self._label}: {text}", file=sys.stderr, flush=True)

    def task_done(self, task: int, horizon: int, matrix: RecallMatrix) -> None:
        seconds = self._pace.task_done()
        parts = [f"task {task} of {horizon} in {duration(seconds)}", recalled(matrix)]
        self.event(", ".join([*parts, *filter(None, [str(self._pace)])]))


class Drawn(Progress):
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
        self._pace.task_done()
        self._bars.update(self._tasks, total=horizon, completed=task, note=recalled(matrix))


class _Left(ProgressColumn):
    """The time left; counts down between two tasks."""

    def render(self, task: Task) -> Text:
        return Text(str(task.fields["pace"]), style="cyan")


def recalled(matrix: RecallMatrix) -> str:
    """How much of all tasks learned so far is recalled, in words."""
    share = final(matrix)
    return "recall not measured" if math.isnan(share) else f"recall of all so far {share:.2f}"


def duration(seconds: float) -> str:
    """A time span to read: 8 s, 2:05 min, 3:10 h."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}:{rest:02} min"
    return f"{minutes // 60}:{minutes % 60:02} h"


@contextmanager
def showing(label: str, learned: int, horizon: int) -> Iterator[Progress]:
    """Progress during the block: bars where standard error is a terminal, else lines.

    learned: tasks that are done before it begins; horizon: tasks when it ends.
    """
    console = Console(stderr=True)
    pace = Pace(learned, horizon)
    if not console.is_terminal:
        yield Lines(label, pace)
        return
    with bars_on(console) as bars:
        yield Drawn(label, learned, horizon, pace, bars)


def bars_on(console: Console) -> Bars:
    """Bars for `Drawn`; removed at the end."""
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


class Rate:
    """Estimate of the time left, from everything done in this process."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._found: int | None = None  # done before this process began

    def left(self, done: int, total: int) -> str:
        """The time left, in words; empty while unknown, and when nothing remains."""
        self._found = done if self._found is None else self._found
        fresh = done - self._found
        if fresh <= 0 or done >= total:
            return ""
        seconds = (self._clock() - self._began) / fresh * (total - done)
        return f"about {duration(seconds)} left"


@contextmanager
def counting(
    label: str, clock: Clock = time.monotonic
) -> Iterator[Callable[[int, int, str], None]]:
    """Yield a function (done, total, note) that draws a bar, or prints a line now and then."""
    console = Console(stderr=True)
    rate = Rate(clock)
    said = clock()

    def line(done: int, total: int, note: str) -> None:
        nonlocal said
        rest = rate.left(done, total)
        if clock() - said >= _SECONDS_PER_LINE or done >= total:
            said = clock()
            parts = [f"{done} of {total}", note, rest]
            print(f"{label}: {', '.join(filter(None, parts))}", file=sys.stderr, flush=True)

    if not console.is_terminal:
        yield line
        return
    with bars_on(console) as bars:
        bar = bars.add_task(escape(label), total=None, note="", pace="")

        def draw(done: int, total: int, note: str) -> None:
            rest = rate.left(done, total)
            bars.update(bar, completed=done, total=total, note=escape(note), pace=rest)

        yield draw
