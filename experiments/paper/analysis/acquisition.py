"""The acquisition gate: find methods that fail to learn, rather than to retain."""

from __future__ import annotations

import pandas as pd

from holdfast.analysis.study import final_runs
from holdfast.core.errors import HoldfastError
from holdfast.results.metrics import TIE

GATE = 0.96  # every other configuration of the paper holds Diag between 96 and 100


def acquisition(cells: pd.DataFrame, gate: float = GATE) -> pd.DataFrame:
    """The methods with Diag below the gate for at least one seed, the lowest mean first.

    cells: of a study; only those that :func:`holdfast.analysis.study.final_runs` selects count.
    gate: share in [0, 1]. Columns: ``dataset``, ``method``, ``diag`` (mean over all seeds),
    ``diag_sd`` (n - 1, NaN for one seed), ``lowest``, ``seeds`` (how many) and ``below`` (the seeds
    that fail, increasing, such as ``41, 43``); empty if all methods pass. A Diag is undefined if
    not every row was observed; it neither passes nor fails and makes the mean NaN.
    Raises HoldfastError for a method and seed that occurs twice, and if no Diag is below the gate
    but some is undefined, because then it is unknown whether all methods pass.
    Source: app:res-failures.
    """
    columns = ["dataset", "method", "diag", "diag_sd", "lowest", "seeds", "below"]
    runs = final_runs(cells)
    rows = []
    for (dataset, method), part in runs.groupby(["dataset", "method"], sort=False):
        failing = sorted(part.loc[part["diag"] < gate - TIE, "seed"])
        if failing:
            diag = part["diag"]
            values = (
                diag.mean(skipna=False),
                diag.std(skipna=False),
                diag.min(),
                len(part),
                ", ".join(map(str, failing)),
            )
            rows.append((dataset, method, *values))
    unknown = runs[runs["diag"].isna()]
    if not rows and len(unknown):
        run = unknown.iloc[0]
        raise HoldfastError(
            f"{run['dataset']}: Diag of {run['method']} with seed {run['seed']} is not defined; "
            "it needs every row (evaluation.rows=every)"
        )
    return pd.DataFrame(rows, columns=columns).sort_values("diag", ignore_index=True)
