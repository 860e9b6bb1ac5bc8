"""The horizon at which the runs of a data set are set beside each other.

Source: app:search-outputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from holdfast.analysis.reading import read_at
from holdfast.core.errors import HoldfastError
from holdfast.results import RecallMatrix

_NAMED = 3  # runs that a line names before it counts the others


def common_horizon(horizons: pd.Series) -> int:
    """The longest horizon that at least half of some runs have reached, in tasks.

    So neither a run that failed early nor one that went further decides for all the others. Runs
    that have learned nothing yet count only where no other has.
    """
    begun = horizons[horizons > 0].sort_values()
    return int(begun.iloc[len(begun) // 2]) if len(begun) else 0


def in_report_order(cells: pd.DataFrame) -> pd.DataFrame:
    """The cells of suites and single runs, not those of searches, at any horizon.

    Of each data set they are those in the stored order of the tasks, where it has some.
    """
    # Cells that no directory holds, such as the paper's, need not say that they are no search's.
    chosen = cells[~cells["searched"]] if "searched" in cells else cells
    stored = chosen["order_seed"].isna()
    return chosen[stored | ~stored.groupby(chosen["dataset"]).transform("any")]


def at_horizon(cells: pd.DataFrame) -> pd.DataFrame:
    """The cells that :func:`in_report_order` gives, of each data set those at its horizon.

    That is :func:`common_horizon`. A method and seed may be there twice.
    """
    chosen = in_report_order(cells)
    if chosen.empty:
        return chosen
    horizons = chosen.groupby("dataset")["horizon"].transform(common_horizon)
    return chosen[chosen["horizon"] == horizons]


def aligned(
    cells: pd.DataFrame, matrices: Mapping[str, RecallMatrix]
) -> tuple[pd.DataFrame, dict[str, RecallMatrix], list[str]]:
    """Read every run that went further than its data set's horizon as it stood there.

    cells, matrices: as a :class:`holdfast.analysis.study.Study` has them, and as they come back,
    with one plain line for each data set that has such runs. The rows of searches stay as they
    are; so does a run that was not evaluated at that horizon, and it is named too.
    """
    cells, matrices, told = cells.copy(), dict(matrices), []
    for dataset, part in in_report_order(cells).groupby("dataset", sort=False):
        horizon = common_horizon(part["horizon"])
        read, left_out = [], []
        for place, run in part[part["horizon"] > horizon].iterrows():
            name = f"{run['method']} seed {run['seed']} ({run['horizon']} tasks)"
            try:
                matrix = matrices[run["path"]].up_to(horizon)
            except HoldfastError:
                left_out.append(name)
                continue
            read.append(name)
            matrices[run["path"]] = matrix
            for column, value in read_at(Path(run["path"]), matrix).items():
                cells.at[place, column] = value
        told += _lines(str(dataset), horizon, read, left_out)
    return cells, matrices, told


def _lines(dataset: str, horizon: int, read: list[str], left_out: list[str]) -> list[str]:
    lines = []
    if read:
        lines.append(
            f"{dataset}: read after {horizon} tasks, as far as at least half of its runs have "
            f"come; read there too, though further on: {_named(read)}"
        )
    if left_out:
        lines.append(
            f"{dataset}: left out, as they were not evaluated after {horizon} tasks like the "
            f"others: {_named(left_out)}"
        )
    return lines


def _named(runs: list[str]) -> str:
    more = len(runs) - _NAMED
    return ", ".join(runs[:_NAMED]) + (f" and {more} more" if more > 0 else "")
