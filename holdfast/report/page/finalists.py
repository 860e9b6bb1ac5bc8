"""Finalists: candidates at a search's last horizon, shown for data sets with only searches."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from holdfast.analysis.horizon import in_report_order
from holdfast.analysis.study import Study
from holdfast.analysis.tables import Analysis, analyse

# Tables that the page shows. The others need a method's composition, or a suite.
_TABLES = ("configurations", "effects", "factorial_model", "survival", "half_lives", "capability")


def shown(cells: pd.DataFrame) -> pd.DataFrame:
    """The cells of one data set that the page shows.

    These are the runs of methods, or if there are only searches, the candidates that reached the
    last horizon, each as a method of the candidate's name.
    """
    evaluated = in_report_order(cells)
    if len(evaluated):
        return evaluated
    # Two searches may share a trajectory.
    finalists = cells[cells["horizon"] == cells["horizon"].max()].drop_duplicates("path")
    return finalists.assign(method=finalists["candidate"], searched=False)


def with_finalists(study: Study, analysis: Analysis) -> Analysis:
    """The analysis, with finalists added for each data set that has only searches."""
    learned = set(in_report_order(study.cells)["dataset"])
    alone = study.cells[~study.cells["dataset"].isin(learned)]
    if alone.empty:
        return analysis
    cells = pd.concat([shown(part) for _, part in alone.groupby("dataset", sort=False)])
    own = analyse(replace(study, cells=cells, traces={}))
    tables = dict(analysis.tables)
    for name in _TABLES:
        parts = [one.tables[name] for one in (analysis, own) if name in one.tables]
        if parts:
            tables[name] = pd.concat(parts, ignore_index=True)
    return Analysis(tables, analysis.absent, {**analysis.refused, **own.refused})
