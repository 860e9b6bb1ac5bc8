"""Cells of a study, written down as a test needs them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pandas as pd

from experiments.paper.published import DATASETS, dataset_table, paper_cells


def cells(
    finals: Mapping[str, Sequence[float]], dataset: str = "here", horizon: int = 10
) -> pd.DataFrame:
    """Cells of each method with seeds 1, 2, ... and these finals."""
    rows = [
        (dataset, method, seed, horizon, final)
        for method, values in finals.items()
        for seed, final in enumerate(values, start=1)
    ]
    table = pd.DataFrame(rows, columns=["dataset", "method", "seed", "horizon", "final"])
    table["order_seed"] = pd.array([pd.NA] * len(table), dtype="Int64")
    return table


def without(table: pd.DataFrame, method: str, seed: int) -> pd.DataFrame:
    """The cells but one."""
    return table[(table["method"] != method) | (table["seed"] != seed)]


def published(dataset: str) -> pd.DataFrame:
    """The paper's per-configuration table by method, in percentages."""
    return dataset_table("all", dataset).set_index("configuration")


def everything_published() -> pd.DataFrame:
    """The paper's cells of all data sets."""
    return pd.concat([paper_cells(dataset) for dataset in DATASETS], ignore_index=True)


def published_runs(dataset: str) -> pd.DataFrame:
    """The cells of ``paper_cells`` with the columns of which the paper says nothing."""
    cells = paper_cells(dataset)
    return cells.assign(study="paper", candidate=cells["method"], half_life=math.nan, path="paper")
