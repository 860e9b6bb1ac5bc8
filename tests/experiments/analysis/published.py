"""The paper's published results as the cells of a study that was read."""

from __future__ import annotations

import math

import pandas as pd

from experiments.paper.published import paper_cells


def published_runs(dataset: str) -> pd.DataFrame:
    """The cells of ``paper_cells`` with the columns of which the paper says nothing."""
    cells = paper_cells(dataset)
    return cells.assign(study="paper", candidate=cells["method"], half_life=math.nan, path="paper")
