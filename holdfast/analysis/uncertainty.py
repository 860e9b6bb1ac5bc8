"""What is noise: means and differences between methods, with the intervals of a bootstrap."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from holdfast.analysis.bootstrap import interval
from holdfast.analysis.lifetimes import BySeed, Lifetime, lives_apart, recall_by_age
from holdfast.analysis.study import Study, final_runs
from holdfast.results import RecallMatrix
from holdfast.results.metrics import terms

METRICS = ("final", "diag", "forget", "w10", "w50")  # means over tasks
HALF_LIFE = "half_life"
_MEANS = ("dataset", "method", "metric", "value", "low", "high", "seeds")
_DIFFERENCES = ("dataset", "metric", "method", "other", "difference", "low", "high", "noise")


def means(study: Study) -> pd.DataFrame:
    """Each method's metrics with their intervals.

    Gives ``dataset``, ``method``, ``metric`` (final, diag, forget, w10, w50, and half_life of the
    mean curve, in tasks), ``value``, ``low`` and ``high`` (95%, as
    :func:`holdfast.analysis.bootstrap.interval`; NaN with fewer than two seeds) and ``seeds``. NaN
    where a seed's value is not defined, and for a half-life or a bound beyond the horizon.
    Raises HoldfastError for a method and seed that is there twice.
    """
    runs = final_runs(study.cells)
    rows: list[tuple[object, ...]] = []
    for dataset, part in runs.groupby("dataset", sort=False):
        seeds = part["method"].value_counts()
        for metric in METRICS:
            values = by_seed(part, study.matrices, metric)
            for method in dict.fromkeys(part["method"]):
                each = np.array(list(values.get(method, {}).values()))
                # A mean over the seeds that happen to be defined would not be comparable.
                whole = len(each) == seeds[method]
                told = (float(each.mean()), *bounds(each)) if whole else (math.nan,) * 3
                rows.append((dataset, method, metric, *told, seeds[method]))
        for method, own in _curves(part, study.matrices).items():
            life = Lifetime(list(own.values()))
            numbers = [life.known(age) for age in (life.value, *life.bounds())]
            rows.append((dataset, method, HALF_LIFE, *numbers, len(own)))
    return pd.DataFrame(rows, columns=list(_MEANS))


def differences(study: Study) -> pd.DataFrame:
    """Each method's metric minus each other's, over the seeds that both have, with its interval.

    Gives ``dataset``, ``metric`` (final, diag, forget, w10, w50, half_life), ``method`` and
    ``other`` (the one with the higher mean first), ``difference`` (share; of half_life tasks),
    ``low`` and ``high`` (95%, as :func:`holdfast.analysis.bootstrap.interval`), ``noise`` (whether
    they enclose 0) and ``seeds``. A pair without two common seeds has no row. A half-life beyond
    the horizon counts as the horizon, so that its difference is the least that it may be; two of
    them have no row.
    Raises HoldfastError for a method and seed that is there twice.
    """
    rows: list[tuple[object, ...]] = []
    runs = final_runs(study.cells)
    for dataset, part in runs.groupby("dataset", sort=False):
        found: list[tuple[str, str, str, float, float, float, int]] = []
        for metric in METRICS:
            values = by_seed(part, study.matrices, metric)
            means = {name: float(np.mean(list(own.values()))) for name, own in values.items()}
            ordered = sorted(means, key=lambda name: (-means[name], name))
            for first, second in itertools.combinations(ordered, 2):
                each = contrasted(values, {first: 1.0, second: -1.0})
                if len(each) > 1:
                    apart = (float(each.mean()), *interval(each), len(each))
                    found.append((metric, first, second, *apart))
        found += [(HALF_LIFE, *told) for told in lives_apart(_curves(part, study.matrices))]
        for *named, difference, low, high, seeds in found:
            rows.append((dataset, *named, difference, low, high, low <= 0 <= high, seeds))
    return pd.DataFrame(rows, columns=[*_DIFFERENCES, "seeds"])


def bounds(each: NDArray[np.float64]) -> tuple[float, float]:
    """The interval of values [seeds, tasks]; NaN with fewer than two seeds."""
    return interval(each) if len(each) > 1 else (math.nan, math.nan)


def contrasted(values: BySeed, weights: Mapping[str, float]) -> NDArray[np.float64]:
    """The weighted sum of methods [seeds, tasks], over the seeds that all of them have."""
    if not weights or not all(name in values for name in weights):
        return np.zeros((0, 1))
    seeds = sorted(set.intersection(*(set(values[name]) for name in weights)))
    return np.array(
        [sum(weight * values[name][seed] for name, weight in weights.items()) for seed in seeds]
    )


def by_seed(
    runs: pd.DataFrame, matrices: Mapping[str, RecallMatrix], metric: str
) -> dict[str, dict[int, NDArray[np.float64]]]:
    """The part of each task in a metric [tasks], by method and seed, where it is defined."""
    found: dict[str, dict[int, NDArray[np.float64]]] = {}
    for row in runs.to_dict("records"):
        values = terms(matrices[row["path"]], metric)
        if len(values) and not np.isnan(values).any():
            found.setdefault(row["method"], {})[row["seed"]] = values
    return found


def _curves(
    runs: pd.DataFrame, matrices: Mapping[str, RecallMatrix]
) -> dict[str, dict[int, NDArray[np.float64]]]:
    """Recall by task and age of every method and seed that has learned something."""
    found: dict[str, dict[int, NDArray[np.float64]]] = {}
    for row in runs.to_dict("records"):
        if matrices[row["path"]].horizon:
            values = recall_by_age(matrices[row["path"]])
            found.setdefault(row["method"], {})[row["seed"]] = values
    return found
