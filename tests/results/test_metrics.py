"""The metrics against the paper's formulas written out as loops."""

from __future__ import annotations

import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.results import (
    Entry,
    RecallMatrix,
    box_emission,
    diagonal,
    final,
    forget,
    forward_transfer,
    half_life,
    retention_by_age,
    summarise,
    window,
)

from .matrices import dense, matrices

complete = matrices(complete=True, smallest=1)
few = settings(max_examples=40)


def close(value: float) -> object:
    return pytest.approx(value, rel=0, abs=1e-12, nan_ok=True)


@few
@given(complete)
def test_final_diagonal_and_forget_equal_the_formulas(matrix: RecallMatrix) -> None:
    last = matrix.horizon
    on_all = on_diagonal = drops = 0.0
    for j in range(1, last + 1):
        on_all += matrix[last, j]
        on_diagonal += matrix[j, j]
        if j < last:
            best = 0.0
            for i in range(j, last + 1):
                best = max(best, matrix[i, j])
            drops += best - matrix[last, j]
    assert final(matrix) == close(on_all / last)
    assert diagonal(matrix) == close(on_diagonal / last)
    assert forget(matrix) == close(drops / (last - 1) if last > 1 else math.nan)


@few
@given(matrices())
def test_retention_and_forward_transfer_average_the_observed_entries(matrix: RecallMatrix) -> None:
    last = matrix.horizon
    by_age: dict[int, list[float]] = {age: [] for age in range(last)}
    before_turn = []
    for i, j, recall in matrix.entries():
        if j == i + 1:
            before_turn.append(recall.accuracy)
        else:
            by_age[i - j].append(recall.accuracy)
    naive = [sum(seen) / len(seen) if seen else math.nan for seen in by_age.values()]
    assert list(retention_by_age(matrix)) == [close(value) for value in naive]
    naive_forward = sum(before_turn) / len(before_turn) if before_turn else math.nan
    assert forward_transfer(matrix) == close(naive_forward)


@few
@given(matrices(), st.integers(1, 9))
def test_window_is_the_mean_over_the_most_recent_tasks(matrix: RecallMatrix, tasks: int) -> None:
    last = matrix.horizon
    recent = [matrix[last, j] for j in range(last - tasks + 1, last + 1) if j >= 1]
    expected = sum(recent) / tasks if len(recent) == tasks else math.nan
    assert window(matrix, tasks) == close(expected)


@few
@given(matrices())
def test_an_unobserved_entry_a_metric_needs_makes_it_nan(matrix: RecallMatrix) -> None:
    tasks = range(1, matrix.horizon + 1)
    last = matrix.horizon
    row = all(not math.isnan(matrix[last, j]) for j in tasks)
    own_turn = all(not math.isnan(matrix[j, j]) for j in tasks)
    assert math.isnan(final(matrix)) == (not row or last == 0)
    assert math.isnan(diagonal(matrix)) == (not own_turn or last == 0)
    needed = [matrix[i, j] for j in tasks[:-1] for i in (j, last)]
    assert math.isnan(forget(matrix)) == (any(map(math.isnan, needed)) or last < 2)


@few
@given(complete, st.data())
def test_a_prefix_of_the_rows_is_the_matrix_of_that_horizon(
    matrix: RecallMatrix, data: st.DataObject
) -> None:
    horizon = data.draw(st.integers(1, matrix.horizon))
    earlier = [entry for entry in matrix.entries() if entry[0] <= horizon]
    assert list(matrix.up_to(horizon).entries()) == earlier
    assert final(matrix.up_to(horizon)) == close(
        sum(matrix[horizon, j] for j in range(1, horizon + 1)) / horizon
    )


@few
@given(matrices(items=st.just(10)))
def test_half_life_is_the_first_age_below_half_in_exact_fractions(matrix: RecallMatrix) -> None:
    expected = None
    retention: list[Fraction] = []
    for age in range(matrix.horizon):
        seen = [Fraction(*entry[:2]) for i, j, entry in matrix.entries() if i - j == age]
        if not seen:
            break
        retention.append(sum(seen) / Fraction(len(seen)))
        if retention[age] < retention[0] / 2:
            expected = age
            break
    assert half_life(matrix) == expected


def test_rounding_does_not_decide_whether_retention_is_below_half() -> None:
    # R(0) = 3/30 and R(1) = 1/20 is exactly half of it, but not in floats.
    matrix = dense([[0.1], [0.0, 0.1], [0.1, 0.1, 0.1]])
    retention = retention_by_age(matrix)
    assert retention[1] < retention[0] / 2
    assert half_life(matrix) is None


def test_forget_takes_the_best_of_the_rows_that_were_observed() -> None:
    """Rows two and four, and each task in its own: the 0.9 of task 1 after task 3 is not seen."""
    complete_matrix = dense([[0.5], [0.6, 0.8], [0.9, 0.7, 1.0], [0.4, 0.3, 0.2, 1.0]])
    assert forget(complete_matrix) == close((0.5 + 0.5 + 0.8) / 3)
    sparse = RecallMatrix()
    for i in range(1, 5):
        row = {j: complete_matrix.entry(i, j) for j in range(1, i + 1) if i % 2 == 0 or i == j}
        sparse = sparse.with_row(i, {j: entry for j, entry in row.items() if entry is not None})
    assert forget(sparse) == close((0.2 + 0.5 + 0.8) / 3)


def test_windows_of_a_long_run_follow_the_paper() -> None:
    rows = [[1.0 if i - j < 20 else 0.0 for j in range(i + 1)] for i in range(100)]
    summary = summarise(dense(rows))
    assert (summary["w10"], summary["w50"], summary["final"]) == (1.0, 0.4, 0.2)
    assert summary["half_life"] == 20
    at_forty = summarise(dense(rows[:40]))
    assert (at_forty["w10"], at_forty["w50"], at_forty["final"]) == (1.0, None, 0.5)


@few
@given(matrices())
def test_the_summary_is_json_with_null_for_nan(matrix: RecallMatrix) -> None:
    summary = summarise(matrix)
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
    assert " ".join(summary) == (
        "final diag forget w10 w50 forward_transfer half_life retention_by_age box_emission"
    )
    for key, metric in [("final", final), ("diag", diagonal), ("forget", forget)]:
        assert (summary[key] is None) == math.isnan(metric(matrix))
    retention = np.array(summary["retention_by_age"], dtype=float)
    np.testing.assert_array_equal(retention, retention_by_age(matrix))


def test_box_emission_of_tasks_just_learned_and_of_all_at_the_end() -> None:
    matrix = RecallMatrix().with_row(0, {1: Entry(0, 4, boxed=0)})
    matrix = matrix.with_row(1, {1: Entry(3, 4, boxed=4), 2: Entry(0, 6, boxed=5)})
    last = {1: Entry(1, 4, boxed=2), 2: Entry(2, 6, boxed=3), 3: Entry(0, 8, boxed=0)}
    matrix = matrix.with_row(2, last)  # the last is the task to come, of which nothing was learned
    assert box_emission(matrix) == {"diagonal": 7 / 10, "final": 5 / 10}
    assert summarise(matrix)["box_emission"] == {"diagonal": 7 / 10, "final": 5 / 10}


def test_box_emission_is_of_what_was_counted() -> None:
    matrix = RecallMatrix().with_row(1, {1: Entry(3, 4, boxed=3)}).with_row(2, {2: (1, 2)})
    assert box_emission(matrix)["diagonal"] == 3 / 4
    assert math.isnan(box_emission(matrix)["final"])
    assert summarise(RecallMatrix())["box_emission"] == {"diagonal": None, "final": None}


def test_a_row_that_asked_one_task_says_nothing_of_the_boxes_of_all() -> None:
    """Such as the last row of a run that was stopped between two rows of ``evaluation.rows``."""
    matrix = RecallMatrix().with_row(1, {1: (2, 4, 2)}).with_row(2, {2: (4, 4, 4)})
    assert box_emission(matrix)["diagonal"] == 6 / 8
    assert math.isnan(box_emission(matrix)["final"])
