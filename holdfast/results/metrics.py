"""The paper's metrics, as functions of a recall matrix.

T is the matrix's horizon, M[i, j] the accuracy on task j after learning task i; every value is
a share in [0, 1], not a percentage. A metric that needs an unobserved entry is NaN, never an
average over the observed ones; the three exceptions, ``forget``, ``retention_by_age`` and
``forward_transfer``, say so.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from holdfast.results.matrix import Entry, RecallMatrix

# Two means that are equal as fractions differ by rounding, about 1e-16; unequal ones by 1e-6
# or more on the paper's 100 tasks of 100 items.
DECIMALS = 12
TIE = 10.0**-DECIMALS

MEANS = ("final", "diag", "forget", "w10", "w50")  # over tasks
#: The metrics that are a single number, as tables show them.
METRICS = (*MEANS, "forward_transfer", "half_life")

Number: TypeAlias = float | None
Metric: TypeAlias = Number | list[Number] | dict[str, Number]


def final(matrix: RecallMatrix) -> float:
    """Mean accuracy over all T tasks after task T; NaN at horizon 0.

    Source: eq. metrics.
    """
    return window(matrix, matrix.horizon)


def diagonal(matrix: RecallMatrix) -> float:
    """Mean accuracy on each task immediately after it is learned; NaN at horizon 0.

    Source: eq. metrics.
    """
    return _mean(terms(matrix, "diag"))


def forget(matrix: RecallMatrix) -> float:
    """Mean over tasks 1..T-1 of the best accuracy ever reached minus the last; NaN for T < 2.

    The best is over the observed rows from the task's own on; NaN if its own row is unobserved.
    Where rows are missing, the true best may be higher.
    Source: eq. metrics.
    """
    return _mean(terms(matrix, "forget"))


def window(matrix: RecallMatrix, tasks: int) -> float:
    """W(k): mean accuracy after task T over the k = ``tasks`` most recent tasks; NaN if T < k.

    Source: app. res-all-configs.
    """
    return _mean(_last(matrix.learned(), tasks))


def terms(matrix: RecallMatrix, metric: str) -> NDArray[np.float64]:
    """The values, one per task, whose mean is a metric of MEANS; empty if the horizon is too short.

    Source: eq. metrics.
    """
    learned = matrix.learned()
    if metric == "diag":
        return np.diagonal(learned)
    if metric == "forget":
        return _forgotten(learned)
    return _last(learned, {"final": len(learned), "w10": 10, "w50": 50}[metric])


def _forgotten(learned: NDArray[np.float64]) -> NDArray[np.float64]:
    if len(learned) < 2:
        return np.zeros(0)
    since_own_turn = np.tril(np.ones(learned.shape, dtype=bool))
    seen = np.where(since_own_turn & ~np.isnan(learned), learned, -np.inf)
    best = np.where(np.isnan(np.diagonal(learned)), np.nan, seen.max(axis=0))  # [T]
    return np.asarray((best - learned[-1])[:-1])


def _last(learned: NDArray[np.float64], tasks: int) -> NDArray[np.float64]:
    """The last row's entries of the most recent tasks; empty when there are fewer."""
    return learned[-1, -tasks:] if 1 <= tasks <= len(learned) else np.zeros(0)


def retention_by_age(matrix: RecallMatrix) -> NDArray[np.float64]:
    """R(a), a = 0..T-1 [T]: mean of the observed M[i, j] with i - j = a; NaN where there is none.

    With only the last row observed it is that row reversed, one task per age.
    Source: sec. res-time.
    """
    learned = matrix.learned()
    diagonals = [np.diagonal(learned, offset=-age) for age in range(len(learned))]
    return np.array([_mean(entries[~np.isnan(entries)]) for entries in diagonals])


def half_life(matrix: RecallMatrix) -> int | None:
    """The first age, in tasks, at which R(a) < R(0) / 2.

    None if R(a) does not fall so far within the horizon, or an unobserved age comes first.
    Source: sec. res-time.
    """
    return halving_age(retention_by_age(matrix))


def halving_age(curve: NDArray[np.float64]) -> int | None:
    """The first age at which a curve [ages] is below half its start; None as in ``half_life``."""
    stops = np.flatnonzero(np.isnan(curve) | (curve < curve[:1] / 2 - TIE))
    return int(stops[0]) if stops.size and not np.isnan(curve[stops[0]]) else None


def forward_transfer(matrix: RecallMatrix) -> float:
    """Mean of the observed M[i, i + 1]: accuracy on a task just before it is learned; NaN if none.

    Includes row 0 (task 1 before any training) and, if it was observed, task T + 1.
    Source: app. res-controls.
    """
    before_turn = np.diagonal(matrix.accuracies(), offset=1)  # [T + 1]: M[0, 1] .. M[T, T + 1]
    return _mean(before_turn[~np.isnan(before_turn)])


def box_emission(matrix: RecallMatrix) -> dict[str, float]:
    """Share of answers that open a box, over the items whose answers were counted.

    ``diagonal``: of every task immediately after it is learned, as far as observed; ``final``: of
    all tasks after task T, NaN if one of them was not asked. NaN if nothing was counted.
    Source: app. res-controls.
    """
    entries = list(matrix.entries())
    last = [entry for i, j, entry in entries if i == matrix.horizon and j <= i]
    return {
        "diagonal": _boxed([entry for i, j, entry in entries if i == j]),
        "final": _boxed(last) if len(last) == matrix.horizon else math.nan,
    }


def summarise(matrix: RecallMatrix) -> dict[str, Metric]:
    """The contents of metrics.json: all metrics, with None in place of NaN."""
    means = {name: _number(_mean(terms(matrix, name))) for name in MEANS}
    return {
        **means,
        "forward_transfer": _number(forward_transfer(matrix)),
        "half_life": half_life(matrix),
        "retention_by_age": [_number(value) for value in retention_by_age(matrix)],
        "box_emission": {name: _number(share) for name, share in box_emission(matrix).items()},
    }


def _boxed(entries: list[Entry]) -> float:
    counted = [(entry.boxed, entry.items) for entry in entries if entry.boxed is not None]
    items = sum(items for _, items in counted)
    return sum(boxed for boxed, _ in counted) / items if items else math.nan


def _mean(values: NDArray[np.float64]) -> float:
    # numpy warns about an empty mean; here NaN is an expected result.
    return float(values.mean()) if values.size else math.nan


def _number(value: float) -> Number:
    return None if math.isnan(value) else float(value)
