"""Callbacks that learning calls while it runs, the lines that they print, and what is measured."""

from __future__ import annotations

import math
import resource
import sys
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.results import RecallMatrix, final

if TYPE_CHECKING:  # the command line draws its bars before torch is loaded
    from torch import Tensor, device

Clock = Callable[[], float]


@dataclass(frozen=True)
class OptimiserStep:
    """One optimiser step.

    task: from 1; number: of the step within the task, from 1; terms: the value of each term of the
    loss, unweighted, one mapping a minibatch; rate: the learning rate; gradient_norm: before
    clipping. Tensors are scalars on the device of the model: reading one may wait for it.
    """

    task: int
    number: int
    terms: Sequence[Mapping[str, Tensor]]
    rate: float
    gradient_norm: Tensor


class Progress:
    """Callbacks of learning, all of which do nothing here: override those that you need.

    The command line draws bars in a subclass, ``holdfast.tracking`` sends to trackers in another.
    An error in a callback ends the run; committed tasks are kept.
    """

    def task_begun(self, task: int, horizon: int) -> None:
        """Learning of task ``task`` of ``horizon`` begins."""

    def optimised(self, step: OptimiserStep) -> None:
        """One optimiser step was taken."""

    def row_observed(self, after_task: int, recall: Mapping[int, float]) -> None:
        """Row ``after_task`` of the matrix was measured; recall: the fraction recalled, by task."""

    def committed(self, event: Mapping[str, Any]) -> None:
        """A task is on disk; event: its line in log.jsonl, with losses and seconds by phase."""

    def step(self, phase: str, task: int, done: int, total: int) -> None:
        """``done`` of ``total`` units of a task's phase are done; the only phase is training."""

    def task_done(self, task: int, horizon: int, matrix: RecallMatrix) -> None:
        """Task ``task`` of ``horizon`` is learned and committed; matrix: recall so far."""

    def event(self, text: str) -> None:
        """A one-line message for the user."""


class Several(Progress):
    """Passes every callback to several listeners, in order."""

    def __init__(self, *listeners: Progress) -> None:
        self._listeners = listeners


def _to_all(name: str) -> Callable[..., None]:
    def callback(self: Several, *values: Any) -> None:
        for listener in self._listeners:
            getattr(listener, name)(*values)

    return callback


for _name in vars(Progress):
    if not _name.startswith("_"):
        setattr(Several, _name, _to_all(_name))


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


def peak_memory(used: device) -> int:
    """Peak memory in bytes: of the GPU on CUDA, otherwise of the whole process."""
    if used.type == "cuda":
        import torch

        return int(torch.cuda.max_memory_allocated(used))
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


class Pace:
    """Estimate the time left from the pace of the latest quarter of this process's work.

    The quarter has at least three units. The first unit is ignored once there is a second: it
    includes loading the model, and task 1 of a stream has no earlier tasks to preserve.

    done: units done before this process began; None: the first count that is reported.
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
        seconds = max(each - (self._clock() - now), 0.0) + each * (self._total - done - 1)
        return f"about {duration(seconds)} left"


class TaskLines(Progress):
    """Prints a line for each task on standard error: its time, the recall so far, the time left.

    label: begins each line; pace: of work that has begun already; None: a new one.
    """

    def __init__(self, label: str = "holdfast", pace: Pace | None = None) -> None:
        self._label = label
        self._pace = pace or Pace()

    def event(self, text: str) -> None:
        sys.stderr.write(f"{self._label}: {text}\n")
        sys.stderr.flush()

    def task_begun(self, task: int, horizon: int) -> None:
        self._pace.reached(task - 1, horizon)

    def task_done(self, task: int, horizon: int, matrix: RecallMatrix) -> None:
        self._pace.reached(task, horizon)
        parts = [f"task {task} of {horizon} in {duration(self._pace.latest)}", recalled(matrix)]
        self.event(", ".join([*parts, *filter(None, [str(self._pace)])]))


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
