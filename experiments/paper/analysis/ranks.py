"""Compositions ranked within each data set, and by their worst rank over all of them."""

from __future__ import annotations

import pandas as pd

from experiments.paper.analysis.factorial import compositions
from experiments.paper.analysis.replicates import by_dataset, replicates
from holdfast.core.errors import HoldfastError
from holdfast.core.mechanisms import tag_of
from holdfast.results.metrics import DECIMALS


def ranks(cells: pd.DataFrame) -> pd.DataFrame:
    """Ranks by mean final retention, 1 for the highest, and k_m, the worst rank of a composition.

    Ranked are the methods of the paper's 2^4 factorial that the study has; every data set needs all
    of them. Columns: ``composition``, the ranks in each data set, ``k_m`` and ``mean_rank``; sorted
    by k_m, then by mean rank, then in the factorial's order. Equal means share the smaller rank
    (1, 2, 2, 4).
    Raises HoldfastError naming the cell if one is missing or duplicated.
    Source: tab:app-factorial-ranks, app:cross-dataset-ranking.
    """
    chosen = _learned(cells)
    table = pd.DataFrame({"composition": chosen})
    datasets = by_dataset(cells)
    for dataset, part in datasets.items():
        table[dataset] = rank(replicates(part, chosen).mean(axis="columns")).to_numpy()
    table["k_m"] = table[list(datasets)].max(axis="columns")
    table["mean_rank"] = table[list(datasets)].mean(axis="columns")
    return table.sort_values(["k_m", "mean_rank"], kind="stable", ignore_index=True)


def rank(means: pd.Series) -> pd.Series:
    """Integer ranks of means, 1 for the highest; equal ones share the smaller rank."""
    return means.round(DECIMALS).rank(ascending=False, method="min").astype(int)


def _learned(cells: pd.DataFrame) -> list[str]:
    # Also methods with settings: if one has several, the error of `replicates` says what to do.
    methods = set(map(tag_of, cells["method"]))
    learned = [method for method in compositions() if method in methods]
    if not learned:
        raise HoldfastError("the study has no composition of SI, SD, replay and merge to rank")
    return learned
