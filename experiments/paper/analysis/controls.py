"""The controls of a study: recall before learning, and whether answers keep their format.

Source: app:res-controls, tab:dataset-summary.
"""

from __future__ import annotations

import pandas as pd

from holdfast.analysis.study import Study, final_runs
from holdfast.results import RecallMatrix, box_emission


def controls(study: Study) -> pd.DataFrame:
    """Forward transfer and box emission of every method, means over seeds, as shares.

    Columns: ``dataset``, ``method``, ``seeds``, ``forward_transfer``, ``forward_transfer_sd``
    (n - 1, NaN for one seed), ``box_emission_diagonal`` (right after a task) and ``box_emission``
    (of all tasks after the last); NaN if a seed's value was not observed.
    Raises HoldfastError for a method and seed that occurs twice.
    Source: app:res-controls.
    """
    runs = final_runs(study.cells)
    diagonal = [box_emission(study.matrices[path])["diagonal"] for path in runs["path"]]
    runs = runs.assign(box_emission_diagonal=diagonal)
    groups = runs.groupby(["dataset", "method"], sort=False)
    table = groups.agg(seeds=("seed", "size"))
    for name in ("forward_transfer", "box_emission_diagonal", "box_emission"):
        whole = groups[name].count() == table["seeds"]
        table[name] = groups[name].mean().where(whole)
        if name == "forward_transfer":
            table[f"{name}_sd"] = groups[name].std().where(whole)
    return table.reset_index()


def datasets(study: Study) -> pd.DataFrame:
    """The size of each data set as far as it was learned, and the size of the study on it.

    Columns: ``dataset``, ``tasks`` (of the run that learned most), ``items`` (in all these tasks),
    ``items_least`` and ``items_most`` (in one task), ``methods`` and ``runs``.
    Source: tab:dataset-summary.
    """
    rows = []
    for dataset, runs in final_runs(study.cells).groupby("dataset", sort=False):
        sizes = max((_sizes(study.matrices[path]) for path in runs["path"]), key=len)
        if not sizes:
            continue
        row = {"dataset": dataset, "tasks": len(sizes), "items": sum(sizes)}
        row |= {"items_least": min(sizes), "items_most": max(sizes)}
        rows.append(row | {"methods": runs["method"].nunique(), "runs": len(runs)})
    columns = ["dataset", "tasks", "items", "items_least", "items_most", "methods", "runs"]
    return pd.DataFrame(rows, columns=columns)


def _sizes(matrix: RecallMatrix) -> list[int]:
    """The number of items of each learned task."""
    sizes = {task: entry.items for after, task, entry in matrix.entries() if after >= task}
    return list(sizes.values())
