"""Each method over its seeds: its metrics, their spread, and retention by age.

Source: app:res-all-configs, app:res-seeds, sec:res-time, fig:survival.
"""

from __future__ import annotations

import math

import pandas as pd

from holdfast.analysis.study import Study, final_runs
from holdfast.core.mechanisms import has
from holdfast.results import retention_by_age
from holdfast.results.metrics import MEANS, halving_age


def configurations(cells: pd.DataFrame) -> pd.DataFrame:
    """Mean and standard deviation (n - 1) over seeds of every method's metrics, as shares.

    One row per data set and method of the :func:`holdfast.analysis.study.final_runs`, each data
    set's highest Final first: ``dataset``, ``method``, ``horizon``, ``seeds`` (how many),
    ``final``, ``final_sd``, likewise ``diag``, ``forget``, ``w10`` and ``w50``, and the mean
    ``half_life`` in tasks. NaN if a seed's value is not defined, and for the deviation of one seed.
    """
    runs = final_runs(cells)
    groups = runs.groupby(["dataset", "method"], sort=False)
    table = groups.agg(horizon=("horizon", "first"), seeds=("seed", "size"))
    for metric in (*MEANS, "half_life"):
        # A mean over only the seeds with a defined value would not be comparable.
        whole = groups[metric].count() == table["seeds"]
        table[metric] = groups[metric].mean().where(whole)
        if metric in MEANS:
            table[f"{metric}_sd"] = groups[metric].std().where(whole)
    table = table.reset_index().sort_values(["final", "method"], ascending=[False, True])
    # Data sets in the order of the cells; a stable sort keeps each one's best method first.
    place = {name: number for number, name in enumerate(runs["dataset"].unique())}
    return table.sort_values(
        "dataset", key=lambda names: names.map(place), kind="stable", ignore_index=True
    )


def seed_spread(cells: pd.DataFrame) -> pd.DataFrame:
    """The standard deviation of Final over seeds, for methods with and without a data anchor.

    Of the :func:`holdfast.analysis.study.final_runs`, without methods of one seed: ``dataset``,
    ``method``, ``data_anchor``, ``final``, ``final_sd`` (n - 1) and ``seeds`` (how many have a
    Final), by data set, methods with a data anchor first, then the largest deviation.
    """
    groups = final_runs(cells).groupby(["dataset", "method"], sort=False)["final"]
    table = groups.agg(final="mean", final_sd="std", seeds="count").reset_index()
    table = table[table["seeds"] > 1]
    table.insert(2, "data_anchor", [has(method, "replay") for method in table["method"]])
    return table.sort_values(
        ["dataset", "data_anchor", "final_sd"], ascending=[True, False, False], ignore_index=True
    )


def curves(study: Study) -> pd.DataFrame:
    """R(a) of every run that :func:`holdfast.analysis.study.final_runs` chooses.

    Gives ``dataset``, ``method``, ``candidate``, ``seed``, ``age`` (tasks learned since, from 0 to
    horizon - 1) and ``retention`` (share; NaN for an unobserved age).
    """
    keys = ["dataset", "method", "candidate", "seed"]
    rows = [
        (*(run[key] for key in keys), age, retention)
        for run in final_runs(study.cells).to_dict("records")
        for age, retention in enumerate(retention_by_age(study.matrices[run["path"]]))
    ]
    return pd.DataFrame(rows, columns=[*keys, "age", "retention"])


def bands(curves: pd.DataFrame) -> pd.DataFrame:
    """The mean of every method's :func:`curves` and its range over seeds.

    Gives ``dataset``, ``method``, ``age``, ``mean``, ``lowest`` and ``highest`` (over seeds) and
    ``seeds``. Values are NaN at an age that a seed did not observe.
    """
    groups = curves.groupby(["dataset", "method", "age"], sort=False)["retention"]
    table = groups.agg(mean="mean", lowest="min", highest="max")
    whole = groups.count() == groups.size()
    return table.where(whole).assign(seeds=groups.size()).reset_index()


def half_lives(bands: pd.DataFrame) -> pd.DataFrame:
    """The age at which each mean curve of :func:`bands` has fallen below half of its start.

    Gives ``dataset``, ``method``, ``half_life`` (the first age with R(a) < R(0) / 2, in tasks; NaN
    if the curve does not fall so far or an unobserved age comes first), ``retention`` (the mean at
    that age) and ``ages`` (a curve that does not halve has a half-life of more than ``ages - 1``).
    """
    keys = ["dataset", "method"]
    rows: list[tuple[object, ...]] = []
    for key, curve in bands.sort_values("age", kind="stable").groupby(keys, sort=False):
        place = halving_age(curve["mean"].to_numpy(dtype=float))
        life = (math.nan, math.nan) if place is None else curve[["age", "mean"]].iloc[place]
        rows.append((*key, *map(float, life), len(curve)))
    return pd.DataFrame(rows, columns=[*keys, "half_life", "retention", "ages"])
