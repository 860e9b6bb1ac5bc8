"""Print one line for every learned task, with an estimate of the time left."""

from __future__ import annotations

import math
import sys
import time
from bisect import bisect_right
from collections.abc import Callable

from holdfast.learning.progress import Progress
from holdfast.results import RecallMatrix, final

Clock = Callable[[], float]


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
