"""Which methods a figure shows where it cannot show all."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from holdfast.core.mechanisms import ALLOCATIONS, ANCHORS, VANILLA

# Each method adds one mechanism to the one before it and removes none.
CHAIN = ("vanilla", "replay", "replay_merge", "si_replay_merge", "si_sd_replay_merge")
_CURVES = 6  # the most curves that a reader can distinguish


def told_curves(bands: pd.DataFrame, configurations: pd.DataFrame) -> pd.DataFrame:
    """The curves of each data set that the figure shows.

    bands: from :func:`holdfast.analysis.curves.bands`.

    Of one data set a few, as :func:`telling` chooses. Of several data sets, in each one: vanilla,
    its strongest standalone mechanism, its strongest composition, and the method of the highest
    mean Final over all data sets.
    configurations: the table of that name, the highest Final of a data set first.
    Source: fig:survival.
    """
    ranked = {
        str(dataset): list(part["method"])
        for dataset, part in configurations.groupby("dataset", sort=False)
    }
    finals = configurations.pivot(index="method", columns="dataset", values="final").dropna()
    leader = [str(finals.mean(axis="columns").idxmax())] if len(ranked) > 1 and len(finals) else []
    most = _CURVES if len(ranked) == 1 else 3
    chosen = {name: {*telling(methods, most), *leader} for name, methods in ranked.items()}
    shown = [
        method in chosen[dataset]
        for dataset, method in zip(bands["dataset"], bands["method"], strict=True)
    ]
    return bands[shown]


def telling(methods: Sequence[str], most: int = _CURVES) -> list[str]:
    """So many methods of a data set: vanilla, the best standalone mechanism, the best others.

    methods: the best first. A standalone mechanism is one anchor, or one rule but the shared one.
    """
    alone = next((method for method in methods if method in (*ANCHORS, *ALLOCATIONS)), None)
    fixed = [method for method in (VANILLA, alone) if method in methods]
    best = [method for method in dict.fromkeys(methods) if method not in fixed]
    chosen = {*fixed, *best[: most - len(fixed)]}
    return [method for method in dict.fromkeys(methods) if method in chosen]


def told_rows(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of the methods of each data set that a figure has room for.

    table: methods in the order of their Final.
    """
    chosen = {
        dataset: telling(list(dict.fromkeys(part["method"])))
        for dataset, part in table.groupby("dataset", sort=False)
    }
    pairs = zip(table["dataset"], table["method"], strict=True)
    return table[[method in chosen[dataset] for dataset, method in pairs]]
