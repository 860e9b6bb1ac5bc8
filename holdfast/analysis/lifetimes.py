"""The uncertainty of half-lives: in each draw the curve is averaged anew, and where it halves.

A half-life is no mean over tasks, but R(a) is one at every age: a draw of tasks and seeds gives a
curve, and the curve its half-life. Source: sec:res-time.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property

import numpy as np
from numpy.typing import NDArray

from holdfast.analysis.bootstrap import draws, percentiles
from holdfast.results import RecallMatrix
from holdfast.results.metrics import TIE

BySeed = Mapping[str, Mapping[int, NDArray[np.float64]]]


class Lifetime:
    """The half-life of the mean curve of some seeds, and in each draw of them and of the tasks.

    seeds: of :func:`recall_by_age`, each [tasks, ages]. ages: the horizon; it stands for a
    half-life that is not within it, or not known.
    """

    def __init__(self, seeds: Sequence[NDArray[np.float64]]) -> None:
        self._seeds = seeds
        tasks, self.ages = seeds[0].shape
        once = np.full((1, len(seeds)), 1 / len(seeds)), np.full((1, tasks), 1 / tasks)
        self.value = float(_half_lives(seeds, *once)[1][0])

    @cached_property
    def drawn(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The least and the most that the half-life may be in each draw, both [draws].

        They differ where no drawn task has an age before the curve halves: that age, and the
        horizon.
        """
        return _half_lives(self._seeds, *draws(len(self._seeds), len(self._seeds[0])))

    def bounds(self) -> tuple[float, float]:
        """The 95% interval, in whole tasks; NaN with fewer than two seeds."""
        if len(self._seeds) < 2:
            return math.nan, math.nan
        least, most = self.drawn
        return percentiles(least, whole=True)[0], percentiles(most, whole=True)[1]

    def known(self, age: float) -> float:
        """NaN for an age that is not within the horizon."""
        return age if age < self.ages else math.nan


def recall_by_age(matrix: RecallMatrix) -> NDArray[np.float64]:
    """M[j + a, j] by task j and age a [tasks, ages]; NaN where it was not observed."""
    learned = matrix.accuracies()[1:, 1:-1]
    tasks = len(learned)
    found = np.full((tasks, tasks), np.nan)
    for task in range(tasks):
        found[task, : tasks - task] = learned[task:, task]
    return found


def lives_apart(
    curves: BySeed,
) -> Iterator[tuple[str, str, float, float, float, int]]:
    """Of each two methods the difference of their half-lives, over the seeds that both have.

    curves: of :func:`recall_by_age` by method and seed. Yields the method with the longer one, the
    other, the difference, its bounds, and the number of seeds; nothing for two that do not halve
    within the horizon, or without two seeds in common.
    """

    @cache
    def lifetime(method: str, seeds: tuple[int, ...]) -> Lifetime:
        return Lifetime([curves[method][seed] for seed in seeds])

    every = {name: lifetime(name, tuple(sorted(own))).value for name, own in curves.items()}
    ordered = sorted(every, key=lambda name: (-every[name], name))
    for first, second in itertools.combinations(ordered, 2):
        seeds = tuple(sorted(set(curves[first]) & set(curves[second])))
        if len(seeds) < 2:
            continue
        one, other = lifetime(first, seeds), lifetime(second, seeds)
        if min(one.value, other.value) < one.ages:
            (least, most), (other_least, other_most) = one.drawn, other.drawn
            low, _ = percentiles(least - other_most, whole=True)
            _, high = percentiles(most - other_least, whole=True)
            yield first, second, one.value - other.value, low, high, len(seeds)


def _half_lives(
    seeds: Sequence[NDArray[np.float64]],
    by_seed: NDArray[np.float64],
    by_task: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The first age at which each weighted mean curve is below half of where it began.

    by_seed, by_task: weights [draws, seeds] and [draws, tasks]. Returns the least and the most that
    it may be, both [draws], as :attr:`Lifetime.drawn` has them.
    """
    mean = np.zeros((len(by_task), seeds[0].shape[1]))
    for place, values in enumerate(seeds):
        seen = ~np.isnan(values)
        weight = by_task @ seen.astype(float)  # of the drawn tasks that have reached each age
        with np.errstate(invalid="ignore"):
            curve = (by_task @ np.where(seen, values, 0.0)) / weight
        share = by_seed[:, place, None]
        mean += np.where(share > 0, share * curve, 0.0)
    stops = np.isnan(mean) | (mean < mean[:, :1] / 2 - TIE)
    least = np.where(stops.any(axis=1), stops.argmax(axis=1), mean.shape[1]).astype(float)
    unknown = np.isnan(mean[np.arange(len(mean)), stops.argmax(axis=1)])
    return least, np.where(unknown, mean.shape[1], least)
