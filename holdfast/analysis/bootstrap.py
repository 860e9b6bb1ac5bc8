"""The bootstrap over seeds and tasks, or over seeds and items: its draws and their percentiles.

Source: Owen, The pigeonhole bootstrap (Annals of Applied Statistics 1, 2007): seeds and tasks are
drawn independently, with replacement, and every method has the same draw.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

DRAWS = 4000
LEVEL = 0.95


def interval(values: NDArray[np.float64]) -> tuple[float, float]:
    """The 95% percentile interval of the mean of values [seeds, tasks].

    4,000 draws, of seeds and of tasks, each with replacement; the same values give the same draws.
    Wide rather than narrow where values differ by task and by chance; too narrow where seeds spread
    most and there are few of them (three seeds: docs/analysis.md).
    """
    seeds, tasks = draws(*values.shape)
    return percentiles(((seeds @ values) * tasks).sum(axis=1))


def percentiles(drawn: NDArray[np.float64], *, whole: bool = False) -> tuple[float, float]:
    """The bounds of the middle 95% of draws; whole: of whole numbers, outwards."""
    low, high = (1 - LEVEL) / 2, (1 + LEVEL) / 2
    if whole:
        return (
            float(np.quantile(drawn, low, method="lower")),
            float(np.quantile(drawn, high, method="higher")),
        )
    return float(np.quantile(drawn, low)), float(np.quantile(drawn, high))


@lru_cache(maxsize=4)
def draws(seeds: int, tasks: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Weights [draws, seeds] and [draws, tasks], each row's sum 1."""
    random = np.random.default_rng([seeds, tasks])
    by_seed = random.multinomial(seeds, np.full(seeds, 1 / seeds), size=DRAWS) / seeds
    by_task = random.multinomial(tasks, np.full(tasks, 1 / tasks), size=DRAWS) / tasks
    return by_seed, by_task


def ratio_draws(
    values: NDArray[np.float64], weights: NDArray[np.float64], number: int = 0
) -> NDArray[np.float64]:
    """In each draw of seeds and items, the sum of the items' values over that of their weights.

    values: [seeds, items]; weights: [items]; number: other draws of items for each number, with
    the same draws of seeds. Items that are alike are drawn as one group, which is the same.
    """
    seeds, items = values.shape
    groups, counts = np.unique(np.vstack([values, weights]), axis=1, return_counts=True)
    by_seed, _ = draws(seeds, 1)
    random = np.random.default_rng([seeds, items, number])
    by_group = random.multinomial(items, counts / items, size=DRAWS)
    total = ((by_seed @ groups[:-1]) * by_group).sum(axis=1)
    return np.asarray(total / (by_group @ groups[-1]))
