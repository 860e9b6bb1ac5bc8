"""The paper's metrics, as functions of a recall matrix.

T is the matrix's horizon, M[i, j] the accuracy on task j after learning task i; everything is
a share in [0, 1], not a percentage. A metric that needs an unobserved entry is NaN, never an
average over what happens to be there; the three exceptions, ``forget``, ``retention_by_age`` and
``forward_transfer``, say so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from holdfast.results.matrix import RecallMatrix

# Two means that are equal as fractions differ by rounding, about 1e-16; unequal ones by 1e-6
# or more on the paper's 100 tasks of 100 items.
TIE = 1e-12

# Those that are one number, as tables have them.
METRICS = ("final", "diag", "forget", "w10", "w50", "forward_transfer", "half_life")

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
    return _mean(np.diagonal(_learned(matrix)))


def forget(matrix: RecallMatrix) -> float:
    """Mean over tasks 1..T-1 of the best accuracy ever reached minus the last; NaN for T < 2.

    The best is over the rows that were observed from the task's own on, which must be among them:
    where rows lie at a distance it may have been higher in between.
    Source: eq. metrics.
    """
    learned = _learned(matrix)
    if len(learned) < 2:
        return math.nan
    since_own_turn = np.tril(np.ones(learned.shape, dtype=bool))
    seen = np.where(since_own_turn & ~np.isnan(learned), learned, -np.inf)
    best = np.where(np.isnan(np.diagonal(learned)), np.nan, seen.max(axis=0))  # [T]
    return _mean((best - learned[-1])[:-1])


def window(matrix: RecallMatrix, tasks: int) -> float:
    """W(k): mean accuracy after task T over the k most recent tasks; NaN when T < k or k < 1.

    tasks: k.
    Source: app. res-all-configs.
    """
    learned = _learned(matrix)
    if not 1 <= tasks <= len(learned):
        return math.nan
    return _mean(learned[-1, -tasks:])


def retention_by_age(matrix: RecallMatrix) -> NDArray[np.float64]:
    """R(a), a = 0..T-1 [T]: mean of the observed M[i, j] with i - j = a; NaN where there is none.

    With every row observed R(a) averages T - a entries. With fewer rows it averages fewer: with
    the last row alone it is that row read backwards, one task an age.
    Source: sec. res-time.
    """
    learned = _learned(matrix)
    diagonals = [np.diagonal(learned, offset=-age) for age in range(len(learned))]
    return np.array([_mean(entries[~np.isnan(entries)]) for entries in diagonals])


def half_life(matrix: RecallMatrix) -> int | None:
    """The first age at which R(a) < R(0) / 2, in tasks; None if that age cannot be given.

    None means that R(a) does not fall so far within the horizon, or that an unobserved age
    comes first; ``retention_by_age`` tells which.
    Source: sec. res-time.
    """
    retention = retention_by_age(matrix)
    for age, value in enumerate(retention):
        if math.isnan(value):
            return None
        if value < retention[0] / 2 - TIE:
            return age
    return None


def forward_transfer(matrix: RecallMatrix) -> float:
    """Mean of the observed M[i, i + 1]: accuracy on a task just before its turn; NaN if none.

    Counts row 0 (task 1 before any training) and, where the stream goes on, task T + 1.
    Source: app. res-controls.
    """
    before_turn = np.diagonal(matrix.accuracies(), offset=1)  # [T + 1]: M[0, 1] .. M[T, T + 1]
    return _mean(before_turn[~np.isnan(before_turn)])


def summarise(
    matrix: RecallMatrix, emission: float | Mapping[str, float] | None = None
) -> dict[str, Metric]:
    """What metrics.json holds, ready for JSON: None wherever a metric is NaN.

    emission: the share of answers that open a box, as one number or one for each checkpoint
    ({"diagonal": 1.0, "final": 1.0}); None when not measured.
    """
    box_emission: Metric
    if isinstance(emission, Mapping):
        box_emission = {checkpoint: _number(share) for checkpoint, share in emission.items()}
    else:
        box_emission = _number(emission)
    return {
        "final": _number(final(matrix)),
        "diag": _number(diagonal(matrix)),
        "forget": _number(forget(matrix)),
        "w10": _number(window(matrix, 10)),
        "w50": _number(window(matrix, 50)),
        "forward_transfer": _number(forward_transfer(matrix)),
        "half_life": half_life(matrix),
        "retention_by_age": [_number(value) for value in retention_by_age(matrix)],
        "box_emission": box_emission,
    }


def _learned(matrix: RecallMatrix) -> NDArray[np.float64]:
    """M without the untouched model and the task to come: [T, T], from task 1."""
    return matrix.accuracies()[1:, 1:-1]


def _mean(values: NDArray[np.float64]) -> float:
    # numpy warns on an empty mean; here it is an ordinary answer.
    return float(values.mean()) if values.size else math.nan


def _number(value: float | None) -> Number:
    return None if value is None or math.isnan(value) else float(value)
