"""What is noise: a paired bootstrap over seeds and tasks of differences between methods.

Source: Owen, The pigeonhole bootstrap (Annals of Applied Statistics 1, 2007): seeds and tasks are
drawn independently, with replacement, and every method has the same draw.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from holdfast.analysis.composition import compositions
from holdfast.analysis.horizon import at_horizon
from holdfast.analysis.replicates import by_dataset, refuse_repeated
from holdfast.analysis.study import Study
from holdfast.results import RecallMatrix
from holdfast.results.metrics import terms

DRAWS = 4000
LEVEL = 0.95
METRICS = ("final", "diag", "forget", "w10", "w50")
_COLUMNS = ("dataset", "metric", "method", "other", "difference", "low", "high", "noise", "seeds")


def differences(study: Study) -> pd.DataFrame:
    """Each method's metric minus each other's, over the seeds that both have, with its interval.

    Gives ``dataset``, ``metric`` (final, diag, forget, w10, w50), ``method`` and ``other`` (the one
    with the higher mean first), ``difference`` (share), ``low`` and ``high`` (95%: percentiles of
    :func:`interval`), ``noise`` (whether they enclose 0) and ``seeds``. A pair without two common
    seeds has no row.
    Raises HoldfastError for a method and seed that is there twice.
    """
    rows: list[tuple[object, ...]] = []
    runs = at_horizon(study.cells)
    refuse_repeated(runs)
    for dataset, part in by_dataset(runs).items():
        for metric in METRICS:
            values = _by_seed(part, study.matrices, metric)
            means = {name: float(np.mean(list(own.values()))) for name, own in values.items()}
            ordered = sorted(means, key=lambda name: (-means[name], name))
            for first, second in itertools.combinations(ordered, 2):
                each = _contrast(values, {first: 1.0, second: -1.0})
                if len(each) > 1:
                    low, high = interval(each)
                    noise = low <= 0 <= high
                    told = (float(each.mean()), low, high, noise, len(each))
                    rows.append((dataset, metric, first, second, *told))
    return pd.DataFrame(rows, columns=list(_COLUMNS))


def with_intervals(
    table: pd.DataFrame, study: Study, contrasts: Sequence[Mapping[str, float]]
) -> pd.DataFrame:
    """A table with ``low`` and ``high`` of the difference in Final that each row is about.

    study: of the table's one data set; contrasts: for each row, the weight of every method whose
    mean is part of the difference. NaN with fewer than two seeds that all of them have.
    """
    values = _by_seed(at_horizon(study.cells), study.matrices, "final")
    bounds = []
    for contrast in contrasts:
        each = _contrast(values, contrast)
        bounds.append(interval(each) if len(each) > 1 else (math.nan, math.nan))
    low, high = zip(*bounds, strict=True) if bounds else ((), ())
    return table.assign(low=low, high=high)


def interval(values: NDArray[np.float64]) -> tuple[float, float]:
    """The 95% percentile interval of the mean of values [seeds, tasks].

    4,000 draws, of seeds and of tasks, each with replacement; the same values give the same draws.
    Wide rather than narrow where values differ by task and by chance; too narrow where seeds spread
    most and there are few of them (three seeds: docs/analysis.md).
    """
    seeds, tasks = _draws(*values.shape)
    means = ((seeds @ values) * tasks).sum(axis=1)
    low, high = np.quantile(means, ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    return float(low), float(high)


def effect_contrasts(terms: Iterable[str], factors: Sequence[str]) -> list[dict[str, float]]:
    """The weights of the compositions in each effect of a factorial, ``term`` as ``si:merge``.

    Source: tab:anova.
    """
    levels = compositions(factors)
    return [
        {
            method: (-1.0) ** sum(not row[factors.index(name)] for name in term.split(":"))
            / (len(levels) / 2)
            for method, row in levels.items()
        }
        for term in terms
    ]


@lru_cache(maxsize=4)
def _draws(seeds: int, tasks: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Weights [draws, seeds] and [draws, tasks], each row's sum 1."""
    random = np.random.default_rng([seeds, tasks])
    by_seed = random.multinomial(seeds, np.full(seeds, 1 / seeds), size=DRAWS) / seeds
    by_task = random.multinomial(tasks, np.full(tasks, 1 / tasks), size=DRAWS) / tasks
    return by_seed, by_task


def _contrast(
    values: Mapping[str, Mapping[int, NDArray[np.float64]]], weights: Mapping[str, float]
) -> NDArray[np.float64]:
    """The weighted sum of methods [seeds, tasks], over the seeds that all of them have."""
    if not weights or not all(name in values for name in weights):
        return np.zeros((0, 1))
    seeds = sorted(set.intersection(*(set(values[name]) for name in weights)))
    return np.array(
        [sum(weight * values[name][seed] for name, weight in weights.items()) for seed in seeds]
    )


def _by_seed(
    runs: pd.DataFrame, matrices: Mapping[str, RecallMatrix], metric: str
) -> dict[str, dict[int, NDArray[np.float64]]]:
    """The part of each task in a metric [tasks], by method and seed, where it is defined."""
    found: dict[str, dict[int, NDArray[np.float64]]] = {}
    for row in runs.to_dict("records"):
        values = terms(matrices[row["path"]], metric)
        if len(values) and not np.isnan(values).any():
            found.setdefault(row["method"], {})[row["seed"]] = values
    return found
