"""Studies in memory for the tests of the page and of the figures."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from holdfast.analysis.study import Study
from holdfast.results import RecallMatrix, summarise

METRICS = ("final", "diag", "forget", "w10", "w50", "forward_transfer", "half_life")


def fading(tasks: int, kept: float, items: int = 20) -> RecallMatrix:
    """A matrix in which each further task leaves a share ``kept`` of what was known."""
    age = np.subtract.outer(np.arange(tasks), np.arange(tasks)).clip(min=0)
    counts = np.rint(items * kept**age).astype(int)
    matrix = RecallMatrix()
    for after_task in range(1, tasks + 1):
        row = {task: (int(counts[after_task - 1, task - 1]), items)
               for task in range(1, after_task + 1)}  # fmt: skip
        matrix = matrix.with_row(after_task, row)
    return matrix


def study_of(
    matrices: Mapping[tuple[str, int], RecallMatrix],
    dataset: str = "symbol_qa",
    missing: tuple[str, ...] = (),
) -> Study:
    """A study of these matrices, by method and seed; no files."""
    rows, by_path = [], {}
    # Matrices may be one object many times, which need not be summarised as often.
    distinct = {id(matrix): matrix for matrix in matrices.values()}
    metrics_of = {key: summarise(matrix) for key, matrix in distinct.items()}
    for (method, seed), matrix in matrices.items():
        path = f"{dataset}/cells/{method}-{seed}"
        metrics = metrics_of[id(matrix)]
        by_path[path] = matrix
        rows.append(
            {"study": dataset, "dataset": dataset, "method": method, "candidate": method}
            | {"seed": seed, "order_seed": pd.NA, "horizon": matrix.horizon}
            | {name: np.nan if metrics[name] is None else metrics[name] for name in METRICS}
            | {"box_emission": 1.0, "state_bytes": 4000.0}
            | {"searched": False, "path": path}
        )
    cells = pd.DataFrame(rows).astype({"order_seed": "Int64"})
    return Study(cells, by_path, {}, missing)


def together(*studies: Study) -> Study:
    """Several studies as one."""
    return Study(
        pd.concat([one.cells for one in studies], ignore_index=True),
        {path: matrix for one in studies for path, matrix in one.matrices.items()},
        {},
        tuple(line for one in studies for line in one.missing),
    )
