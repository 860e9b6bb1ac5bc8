"""The greedy path through a factorial: always add the mechanism that helps most."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from experiments.paper.analysis.factorial import FACTORS, composition
from experiments.paper.analysis.replicates import by_dataset, replicates
from holdfast.results.metrics import DECIMALS


def build_up(cells: pd.DataFrame, factors: Sequence[str] = FACTORS) -> pd.DataFrame:
    """Start from vanilla; each step adds the mechanism that gives the highest mean final retention.

    The path continues to the last mechanism even if every addition lowers retention. A tie goes
    to the mechanism that ``factors`` names first.
    One row per data set and step: ``dataset``, ``step`` (0 for vanilla), ``added`` (empty at step
    0), ``method``, ``final`` (mean over seeds), ``final_sd``, and ``strongest``, true for the
    highest mean of each path (the first of equal ones).
    Raises HoldfastError naming the cell if a composition that a step compares is missing.
    Source: app:res-buildup, fig:app-buildup.
    """
    paths = [_path(dataset, part, factors) for dataset, part in by_dataset(cells).items()]
    columns = ["dataset", "step", "added", "method", "final", "final_sd", "strongest"]
    return pd.concat(paths, ignore_index=True)[columns] if paths else pd.DataFrame(columns=columns)


def _path(dataset: str, cells: pd.DataFrame, factors: Sequence[str]) -> pd.DataFrame:
    present: list[str] = []
    rows = [_row("", replicates(cells, [composition(present)]))]
    while len(present) < len(factors):
        additions = {
            composition([*present, factor]): factor for factor in factors if factor not in present
        }
        # Include the method of the step before, so that `replicates` requires the same seeds.
        finals = replicates(cells, [composition(present), *additions]).loc[list(additions)]
        best = finals.mean(axis="columns").round(DECIMALS).idxmax()
        present.append(additions[best])
        rows.append(_row(additions[best], finals.loc[[best]]))
    path = pd.DataFrame(rows)
    path.insert(0, "dataset", dataset)
    path.insert(1, "step", range(len(path)))
    path["strongest"] = path.index == path["final"].round(DECIMALS).idxmax()
    return path


def _row(added: str, finals: pd.DataFrame) -> dict[str, object]:
    """A row of the path. finals: of one method, its seeds as columns."""
    (values,) = finals.to_numpy(dtype=float)
    return {
        "added": added,
        "method": finals.index[0],
        "final": values.mean(),
        "final_sd": finals.std(axis="columns").iloc[0],
    }
