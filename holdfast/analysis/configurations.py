"""The per-configuration table: every method's metrics, mean and deviation over seeds."""

from __future__ import annotations

import pandas as pd

from holdfast.analysis.study import final_runs

SPREAD = ("final", "diag", "forget", "w10", "w50")


def configurations(cells: pd.DataFrame) -> pd.DataFrame:
    """Mean and standard deviation (n - 1) over seeds of every method's metrics, as shares.

    cells: of a study; those count that :func:`holdfast.analysis.study.final_runs` chooses.
    Gives one row a data set and method, the highest final retention of a data set first:
    ``dataset``, ``method``, ``horizon``, ``seeds`` (how many), ``final``, ``final_sd``, likewise
    ``diag``, ``forget``, ``w10`` and ``w50``, and the mean ``half_life`` in tasks. NaN where a
    seed's value is not defined, or for a deviation of one seed.
    Raises HoldfastError for a method and seed that is there twice.
    Source: app:res-all-configs.
    """
    runs = final_runs(cells)
    groups = runs.groupby(["dataset", "method"], sort=False)
    table = groups.agg(horizon=("horizon", "first"), seeds=("seed", "size"))
    for metric in SPREAD:
        # A mean over the seeds that happen to be defined would not be comparable.
        whole = groups[metric].count() == table["seeds"]
        table[metric] = groups[metric].mean().where(whole)
        table[f"{metric}_sd"] = groups[metric].std().where(whole)
    table["half_life"] = groups["half_life"].mean()
    table["half_life"] = table["half_life"].where(groups["half_life"].count() == table["seeds"])
    table = table.reset_index()
    place = table["dataset"].map({name: i for i, name in enumerate(table["dataset"].unique())})
    order = table.assign(_place=place).sort_values(
        ["_place", "final", "method"], ascending=[True, False, True]
    )
    return order.drop(columns="_place").reset_index(drop=True)
