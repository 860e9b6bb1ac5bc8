"""Means and differences between methods, with bootstrap intervals.

Seeds and tasks, or seeds and items, are drawn independently, with replacement, and with the same
draws for every method: Owen, The pigeonhole bootstrap (Annals of Applied Statistics 1, 2007). A
half-life is not a mean over tasks: each draw gives a mean curve R(a), and that its half-life.
Source: sec:res-time.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property, lru_cache
from typing import TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from holdfast.analysis.study import Study, final_runs
from holdfast.results import RecallMatrix
from holdfast.results.metrics import MEANS, TIE, terms

DRAWS = 4000
LEVEL = 0.95


def interval(values: NDArray[np.float64]) -> tuple[float, float]:
    """The 95% percentile interval of the mean of values [seeds, tasks].

    Values of one shape have the same draws. The interval is rather too wide if values vary mostly
    by task and by chance, and too narrow if by seed and seeds are few (docs/analysis.md).
    """
    seeds, tasks = draws(*values.shape)
    return percentiles(((seeds @ values) * tasks).sum(axis=1))


def percentiles(drawn: NDArray[np.float64], *, whole: bool = False) -> tuple[float, float]:
    """The bounds of the middle 95% of draws. whole: take drawn values, rounding outwards."""
    low = np.quantile(drawn, (1 - LEVEL) / 2, method="lower" if whole else "linear")
    high = np.quantile(drawn, (1 + LEVEL) / 2, method="higher" if whole else "linear")
    return float(low), float(high)


@lru_cache(maxsize=4)
def draws(seeds: int, tasks: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Bootstrap weights [draws, seeds] and [draws, tasks]; each row sums to 1."""
    random = np.random.default_rng([seeds, tasks])
    by_seed = random.multinomial(seeds, np.full(seeds, 1 / seeds), size=DRAWS) / seeds
    by_task = random.multinomial(tasks, np.full(tasks, 1 / tasks), size=DRAWS) / tasks
    return by_seed, by_task


def ratio_draws(
    values: NDArray[np.float64], weights: NDArray[np.float64], number: int = 0
) -> NDArray[np.float64]:
    """In each draw of seeds and items, the items' summed values over their summed weights: [draws].

    values: [seeds, items], averaged over seeds; weights: [items]; number: each number has its own
    draws of items, and all have the same draws of seeds.
    """
    seeds, items = values.shape
    # Equal items are drawn as one group, which has the same distribution.
    groups, counts = np.unique(np.vstack([values, weights]), axis=1, return_counts=True)
    by_seed, _ = draws(seeds, 1)
    random = np.random.default_rng([seeds, items, number])
    by_group = random.multinomial(items, counts / items, size=DRAWS)
    total = ((by_seed @ groups[:-1]) * by_group).sum(axis=1)
    return np.asarray(total / (by_group @ groups[-1]))


HALF_LIFE = "half_life"
BySeed: TypeAlias = Mapping[str, Mapping[int, NDArray[np.float64]]]


def means(study: Study) -> pd.DataFrame:
    """Each method's metrics with their intervals.

    Gives ``dataset``, ``method``, ``metric`` (final, diag, forget, w10, w50, and half_life of the
    mean curve, in tasks), ``value``, ``low`` and ``high`` (95%, as :func:`interval`;
    NaN with fewer than two seeds) and ``seeds``. NaN if a seed's value is not defined, and for a
    half-life or a bound beyond the horizon.
    """
    rows: list[tuple[object, ...]] = []
    for dataset, part in final_runs(study.cells).groupby("dataset", sort=False):
        seeds = part["method"].value_counts()
        for metric in MEANS:
            values = by_seed(part, study.matrices, metric)
            for method in dict.fromkeys(part["method"]):
                per_seed = np.array(list(values.get(method, {}).values()))
                # A mean over only the seeds with a defined value would not be comparable.
                whole = len(per_seed) == seeds[method]
                estimate = (float(per_seed.mean()), *bounds(per_seed)) if whole else (math.nan,) * 3
                rows.append((dataset, method, metric, *estimate, seeds[method]))
        for method, curves in _curves(part, study.matrices).items():
            life = Lifetime(list(curves.values()))
            numbers = [life.within_horizon(age) for age in (life.value, *life.bounds())]
            rows.append((dataset, method, HALF_LIFE, *numbers, len(curves)))
    return pd.DataFrame(
        rows, columns=["dataset", "method", "metric", "value", "low", "high", "seeds"]
    )


def differences(study: Study) -> pd.DataFrame:
    """Each method's metric minus each other's, over the seeds that both have, with its interval.

    Gives ``dataset``, ``metric`` (final, diag, forget, w10, w50, half_life), ``method`` and
    ``other`` (the higher mean first), ``difference`` (a share; for half_life in tasks), ``low`` and
    ``high`` (95%, as :func:`interval`), ``noise`` (whether these enclose 0) and ``seeds``. A pair
    without two common seeds has no row. A half-life beyond the horizon counts as the horizon, so
    the difference is a lower bound; a pair with both beyond the horizon has no row.
    """
    rows: list[tuple[object, ...]] = []
    for dataset, part in final_runs(study.cells).groupby("dataset", sort=False):
        pairs: list[tuple[str, str, str, float, float, float, int]] = []
        for metric in MEANS:
            values = by_seed(part, study.matrices, metric)
            means = {name: float(np.mean(list(seeds.values()))) for name, seeds in values.items()}
            ordered = sorted(means, key=lambda name: (-means[name], name))
            for first, second in itertools.combinations(ordered, 2):
                per_seed = contrasted(values, {first: 1.0, second: -1.0})
                if len(per_seed) > 1:
                    apart = (float(per_seed.mean()), *interval(per_seed), len(per_seed))
                    pairs.append((metric, first, second, *apart))
        curves = _curves(part, study.matrices)
        pairs += [(HALF_LIFE, *pair) for pair in half_life_differences(curves)]
        for *key, difference, low, high, seeds in pairs:
            noise = low <= TIE and high >= -TIE  # a bound of 0 may be off by rounding
            rows.append((dataset, *key, difference, low, high, noise, seeds))
    keys = ["dataset", "metric", "method", "other"]
    return pd.DataFrame(rows, columns=[*keys, "difference", "low", "high", "noise", "seeds"])


def bounds(values: NDArray[np.float64]) -> tuple[float, float]:
    """The interval of values [seeds, tasks]; NaN with fewer than two seeds."""
    return interval(values) if len(values) > 1 else (math.nan, math.nan)


def contrasted(values: BySeed, weights: Mapping[str, float]) -> NDArray[np.float64]:
    """The weighted sum of methods' values [seeds, tasks], for the seeds that all of them have."""
    if not weights or not all(name in values for name in weights):
        return np.zeros((0, 1))
    seeds = sorted(set.intersection(*(set(values[name]) for name in weights)))
    return np.array(
        [sum(weight * values[name][seed] for name, weight in weights.items()) for seed in seeds]
    )


def by_seed(
    runs: pd.DataFrame, matrices: Mapping[str, RecallMatrix], metric: str
) -> dict[str, dict[int, NDArray[np.float64]]]:
    """Each task's term of a metric [tasks], by method and seed; without undefined metrics."""
    values_by_seed: dict[str, dict[int, NDArray[np.float64]]] = {}
    for row in runs.to_dict("records"):
        values = terms(matrices[row["path"]], metric)
        if len(values) and not np.isnan(values).any():
            values_by_seed.setdefault(row["method"], {})[row["seed"]] = values
    return values_by_seed


def _curves(
    runs: pd.DataFrame, matrices: Mapping[str, RecallMatrix]
) -> dict[str, dict[int, NDArray[np.float64]]]:
    """Recall by task and age of every method and seed that has learned something."""
    curves: dict[str, dict[int, NDArray[np.float64]]] = {}
    for row in runs.to_dict("records"):
        if matrices[row["path"]].horizon:
            values = recall_by_age(matrices[row["path"]])
            curves.setdefault(row["method"], {})[row["seed"]] = values
    return curves


class Lifetime:
    """The half-life of the mean curve of some seeds, and of each bootstrap draw.

    seeds: of :func:`recall_by_age`, each [tasks, ages]. value: the half-life; equal to ``ages``,
    the horizon, if it is beyond that or unknown. learned: whether anything was recalled at age 0;
    otherwise there is no half-life.
    """

    def __init__(self, seeds: Sequence[NDArray[np.float64]]) -> None:
        self._seeds = seeds
        tasks, self.ages = seeds[0].shape
        once = np.full((1, len(seeds)), 1 / len(seeds)), np.full((1, tasks), 1 / tasks)
        self.value = float(_half_lives(seeds, *once)[1][0])
        self.learned = any(np.nanmax(values[:, 0]) > TIE for values in seeds)

    @cached_property
    def drawn(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Lower and upper limits of the half-life in each draw, both [draws].

        They differ if, before the curve halves, there is an age that no drawn task has reached:
        the limits are that age and the horizon.
        """
        return _half_lives(self._seeds, *draws(len(self._seeds), len(self._seeds[0])))

    def bounds(self) -> tuple[float, float]:
        """The 95% interval, in whole tasks; NaN with fewer than two seeds, or nothing learned."""
        if len(self._seeds) < 2 or not self.learned:
            return math.nan, math.nan
        least, most = self.drawn
        return percentiles(least, whole=True)[0], percentiles(most, whole=True)[1]

    def within_horizon(self, age: float) -> float:
        """The age, or NaN if it is not within the horizon."""
        return age if age < self.ages else math.nan


def recall_by_age(matrix: RecallMatrix) -> NDArray[np.float64]:
    """M[j + a, j] by task j and age a [tasks, ages]; NaN where it was not observed."""
    learned = matrix.learned()
    tasks = len(learned)
    by_age = np.full((tasks, tasks), np.nan)
    for task in range(tasks):
        by_age[task, : tasks - task] = learned[task:, task]
    return by_age


def half_life_differences(curves: BySeed) -> Iterator[tuple[str, str, float, float, float, int]]:
    """Yield the difference in half-life of each two methods, over the seeds that both have.

    curves: of :func:`recall_by_age`. Yields the method with the longer half-life, the other, the
    difference, its bounds, and the number of seeds. Left out are pairs of which neither halves
    within the horizon or one learned nothing, or without two common seeds.
    """

    @cache
    def lifetime(method: str, seeds: tuple[int, ...]) -> Lifetime:
        return Lifetime([curves[method][seed] for seed in seeds])

    half_life = {name: lifetime(name, tuple(sorted(seeds))).value for name, seeds in curves.items()}
    ordered = sorted(half_life, key=lambda name: (-half_life[name], name))
    for first, second in itertools.combinations(ordered, 2):
        seeds = tuple(sorted(set(curves[first]) & set(curves[second])))
        if len(seeds) < 2:
            continue
        one, other = lifetime(first, seeds), lifetime(second, seeds)
        if one.learned and other.learned and min(one.value, other.value) < one.ages:
            (least, most), (other_least, other_most) = one.drawn, other.drawn
            low, _ = percentiles(least - other_most, whole=True)
            _, high = percentiles(most - other_least, whole=True)
            yield first, second, one.value - other.value, low, high, len(seeds)


def _half_lives(
    seeds: Sequence[NDArray[np.float64]],
    by_seed: NDArray[np.float64],
    by_task: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The first age at which each weighted mean curve is below half of its start.

    by_seed, by_task: weights [draws, seeds] and [draws, tasks]. Returns the lower and upper limits
    of :attr:`Lifetime.drawn`, both [draws].
    """
    mean = np.zeros((len(by_task), seeds[0].shape[1]))
    for place, values in enumerate(seeds):
        seen = ~np.isnan(values)
        weight = by_task @ seen.astype(float)  # of the drawn tasks observed at each age
        with np.errstate(invalid="ignore"):
            curve = (by_task @ np.where(seen, values, 0.0)) / weight
        share = by_seed[:, place, None]
        mean += np.where(share > 0, share * curve, 0.0)
    stops = np.isnan(mean) | (mean < mean[:, :1] / 2 - TIE)
    least = np.where(stops.any(axis=1), stops.argmax(axis=1), mean.shape[1]).astype(float)
    unknown = np.isnan(mean[np.arange(len(mean)), stops.argmax(axis=1)])
    return least, np.where(unknown, mean.shape[1], least)
