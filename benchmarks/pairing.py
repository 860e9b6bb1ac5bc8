"""Time two ways of doing the same work in alternation, and take the median of their ratios.

A shared machine slows down and recovers within seconds. Both sides of a round run under the same
conditions, so their ratio is reliable even if their seconds are not.
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
    """Values of one quantity, round by round.

    engine, reference: one value per round, smaller is better; target: the least ratio wanted;
    note: for the reader of the table, such as an extrapolation.
    """

    name: str
    unit: str
    engine: list[float]
    reference: list[float] | None = None
    target: float | None = None
    note: str = ""

    @property
    def ratios(self) -> list[float]:
        """Reference over engine, per round; above 1 the engine is cheaper."""
        pairs = zip(self.engine, self.reference or [], strict=bool(self.reference))
        return [theirs / ours for ours, theirs in pairs]

    @property
    def ratio(self) -> float | None:
        """The median ratio; None without a reference."""
        return statistics.median(self.ratios) if self.reference else None


def seconds(work: Work) -> float:
    """Seconds of one call; waits for the GPU, if any, before and after."""
    gc.collect()
    synchronise()
    start = time.perf_counter()
    work()
    synchronise()
    return time.perf_counter() - start


def synchronise() -> None:
    """Wait until the GPU, if any, has finished its work."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def alternate(rounds: int, *works: Work, warm: bool = True) -> list[list[float]]:
    """Seconds of each work in each round; odd rounds reverse the order. warm: run each before."""
    if warm:
        for work in works:
            work()
    seconds_of: list[list[float]] = [[] for _ in works]
    for number in range(rounds):
        order = list(enumerate(works))
        for index, work in order if number % 2 == 0 else reversed(order):
            seconds_of[index].append(seconds(work))
    return seconds_of
