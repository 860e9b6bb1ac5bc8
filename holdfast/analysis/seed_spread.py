"""How much the seed decides, with and without the data anchor.

Source: app:res-seeds.
"""

from __future__ import annotations

import pandas as pd

from holdfast.analysis.composition import has
from holdfast.analysis.study import final_runs

_DATA_ANCHOR = "replay"


def seed_spread(cells: pd.DataFrame) -> pd.DataFrame:
    """The standard deviation over seeds of final retention, data anchor against none.

    cells: of a study; those count that :func:`holdfast.analysis.study.final_runs` chooses. A method
    with one seed has no spread and no row.
    Gives ``dataset``, ``method``, ``data_anchor``, ``final``, ``final_sd`` (n - 1) and ``seeds``
    (of which Final is defined), by data set, those with the data anchor first, the largest
    deviation first.
    Raises HoldfastError for a method and seed that is there twice.
    Source: app:res-seeds.
    """
    groups = final_runs(cells).groupby(["dataset", "method"], sort=False)["final"]
    table = groups.agg(final="mean", final_sd="std", seeds="count").reset_index()
    table = table[table["seeds"] > 1]
    table.insert(2, "data_anchor", [has(method, _DATA_ANCHOR) for method in table["method"]])
    return table.sort_values(
        ["dataset", "data_anchor", "final_sd"], ascending=[True, False, False], ignore_index=True
    )
