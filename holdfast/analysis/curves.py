"""How memories fade with age: R(a) of every seed, their mean and band, and the half-life.

Source: sec:res-time, fig:survival.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from holdfast.analysis.study import Study, final_runs
from holdfast.results import retention_by_age
from holdfast.results.metrics import TIE

_COLUMNS = ("dataset", "method", "candidate", "seed", "age", "retention")


def curves(study: Study) -> pd.DataFrame:
    """R(a) of every final run, a = 0 .. horizon - 1.

    Gives ``dataset``, ``method``, ``candidate``, ``seed``, ``age`` (tasks learned since) and
    ``retention`` (share; NaN for an age that nobody observed), of the runs that
    :func:`holdfast.analysis.study.final_runs` chooses.
    Raises HoldfastError for a method and seed that is there twice.
    Source: sec:res-time.
    """
    parts = []
    for row in final_runs(study.cells).to_dict("records"):
        retention = retention_by_age(study.matrices[row["path"]])
        values = {name: row[name] for name in _COLUMNS[:4]}
        parts.append(
            pd.DataFrame(values | {"age": np.arange(len(retention)), "retention": retention})
        )
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=list(_COLUMNS))


def bands(curves: pd.DataFrame) -> pd.DataFrame:
    """The mean curve of every method and its spread over seeds.

    curves: of :func:`curves`. Gives ``dataset``, ``method``, ``age``, ``mean``, ``lowest`` and
    ``highest`` (over seeds) and ``seeds``. An age that a seed did not observe is NaN.
    Source: fig:survival.
    """
    groups = curves.groupby(["dataset", "method", "age"], sort=False)["retention"]
    table = groups.agg(["mean", "min", "max", "count", "size"])
    table = table.where(table["count"] == table["size"]).assign(size=table["size"])
    table = table.rename(columns={"min": "lowest", "max": "highest", "size": "seeds"})
    columns = ["mean", "lowest", "highest", "seeds"]
    return table[columns].reset_index()


def half_lives(bands: pd.DataFrame) -> pd.DataFrame:
    """The age at which each mean curve has fallen below half of where it began.

    bands: of :func:`bands`. Gives ``dataset``, ``method``, ``half_life`` (the first age with
    R(a) < R(0) / 2, in tasks; NaN where the curve does not fall so far, or an unobserved age comes
    first), ``retention`` (the mean at that age) and ``ages`` (how many ages the curve has, so that
    a missing half-life reads as "more than ``ages - 1``").
    Source: sec:res-time.
    """
    rows = [
        {"dataset": dataset, "method": method, **_half_life(part.sort_values("age"))}
        for (dataset, method), part in bands.groupby(["dataset", "method"], sort=False)
    ]
    return pd.DataFrame(rows, columns=["dataset", "method", "half_life", "retention", "ages"])


def _half_life(curve: pd.DataFrame) -> dict[str, Any]:
    ages, mean = curve["age"].to_numpy(), curve["mean"].to_numpy(dtype=float)
    stops = np.flatnonzero(np.isnan(mean) | (mean < mean[0] / 2 - TIE))
    known = stops.size > 0 and not np.isnan(mean[stops[0]])
    return {
        "half_life": float(ages[stops[0]]) if known else math.nan,
        "retention": float(mean[stops[0]]) if known else math.nan,
        "ages": len(ages),
    }
