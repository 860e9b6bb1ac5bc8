"""Two ways of doing the same work, timed in alternation, and the median of their ratios.

A machine that others use slows down and recovers within seconds. Both sides of a round meet the
same machine, so the ratio of a round holds where its seconds do not.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

Work = Callable[[], object]


@dataclass(frozen=True)
class Plan:
    """rounds: how often each side is timed; smoke: the smallest sizes, for correctness only."""

    rounds: int = 5
    smoke: bool = False


@dataclass(frozen=True)
class Measurement:
    """One thing measured, round by round.

    engine, reference: one value a round, smaller is better; target: the least ratio asked for;
    note: what a reader has to know, extrapolations above all.
    """

    name: str
    unit: str
    engine: list[float]
    reference: list[float] | None = None
    target: float | None = None
    note: str = ""

    @property
    def ratios(self) -> list[float]:
        """Reference over engine, round by round: above one, the engine is the cheaper."""
        pairs = zip(self.engine, self.reference or [], strict=bool(self.reference))
        return [theirs / ours for ours, theirs in pairs]

    @property
    def ratio(self) -> float | None:
        """The median ratio; None without a reference."""
        return statistics.median(self.ratios) if self.reference else None


def seconds(work: Work) -> float:
    """How long one call takes, on an idle GPU at both ends where there is one."""
    gc.collect()
    synchronise()
    start = time.perf_counter()
    work()
    synchronise()
    return time.perf_counter() - start


def synchronise() -> None:
    """Wait until the GPU, where there is one, has done what it was asked to do."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def alternate(rounds: int, *works: Work, warm: bool = True) -> list[list[float]]:
    """Seconds of every work in every round; the order turns round, each is warmed up once."""
    if warm:
        for work in works:
            work()
    seconds_of: list[list[float]] = [[] for _ in works]
    for number in range(rounds):
        order = list(enumerate(works))
        for index, work in order if number % 2 == 0 else reversed(order):
            seconds_of[index].append(seconds(work))
    return seconds_of
