"""The recall matrix as a value, and matrix.csv as its exact image."""

from __future__ import annotations

import math
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import HoldfastError
from holdfast.results import Entry, RecallMatrix
from tests.refused import line_of

from .matrices import matrices

HEADER = "after_task,on_task,correct,items,boxed,accuracy"


def test_entries_are_labelled_after_task_then_on_task() -> None:
    matrix = RecallMatrix().with_row(1, {1: (9, 10), 2: (1, 10)}).with_row(2, {1: (0, 10)})
    assert (matrix[1, 1], matrix[1, 2], matrix[2, 1]) == (0.9, 0.1, 0.0)
    assert matrix.entry(1, 1) == Entry(correct=9, items=10)
    for unobserved in ((2, 2), (0, 1), (1, 50)):  # NaN and never zero
        assert math.isnan(matrix[unobserved]) and matrix.entry(*unobserved) is None
    for impossible in ((-1, 1), (1, 0)):
        with pytest.raises(HoldfastError, match="tasks from 1"):
            matrix[impossible]


def test_a_new_row_leaves_the_old_matrix_as_it_was() -> None:
    before = RecallMatrix().with_row(1, {1: (5, 10)})
    after = before.with_row(2, {1: (4, 10), 2: (10, 10)})
    assert (before.horizon, after.horizon) == (1, 2)
    assert before != after and before == after.up_to(1)
    assert hash(before) == hash(after.up_to(1))


@pytest.mark.parametrize(
    ("after_task", "row", "message"),
    [
        (2, {1: (1, 10)}, "row 2 cannot follow row 2"),
        (1, {1: (1, 10)}, "row 1 cannot follow row 2"),
        (3, {}, "row 3 is empty"),
        (3, {5: (1, 10)}, "only tasks 1 to 4"),
        (3, {1: (11, 10)}, "11 correct of 10"),
        (3, {1: (0, 0)}, "0 items"),
        (3, {1: (2, 4, 5)}, "a box in 5 of 4 answers"),
        (3, {1: (2, 4, 1)}, "a box in 1 of 4 answers, 2 of them correct"),
    ],
)
def test_an_impossible_row_is_refused(
    after_task: int, row: dict[int, Entry | tuple[int, int]], message: str
) -> None:
    matrix = RecallMatrix().with_row(2, {1: (1, 10)})
    with pytest.raises(HoldfastError, match=message) as refusal:
        matrix.with_row(after_task, row)
    assert "\n" not in str(refusal.value)


def test_counts_from_numpy_become_plain_integers_and_fractions_are_refused() -> None:
    row: Any = {np.int64(1): (np.int64(3), np.int32(4))}
    matrix = RecallMatrix().with_row(1, row)
    assert matrix.to_csv() == f"{HEADER}\n1,1,3,4,,0.75\n"
    with pytest.raises(TypeError):
        RecallMatrix().with_row(1, {1: (0.5, 1)})  # type: ignore[dict-item]
    number: Any = 1
    with pytest.raises(HoldfastError, match=r"\[1\] is no entry; write matrix\[after_task"):
        matrix[number]


def test_up_to_refuses_a_horizon_whose_row_was_not_observed() -> None:
    matrix = RecallMatrix().with_row(10, {1: (1, 10)}).with_row(20, {1: (0, 10)})
    assert matrix.up_to(10).observed_rows == (10,)
    with pytest.raises(HoldfastError, match="no row after task 15 in the matrix; its rows: 10, 20"):
        matrix.up_to(15)


@given(matrices())
def test_accuracies_agree_with_every_entry(matrix: RecallMatrix) -> None:
    table = matrix.accuracies()
    assert table.shape == (matrix.horizon + 1, matrix.horizon + 2)
    for after_task in range(table.shape[0]):
        for on_task in range(1, table.shape[1]):
            np.testing.assert_equal(table[after_task, on_task], matrix[after_task, on_task])
    assert np.isnan(table[:, 0]).all()
    table[:] = 2.0
    assert not (matrix.accuracies() == 2.0).any()  # everybody has a table of his own


def test_csv_has_the_format_of_the_contract() -> None:
    matrix = RecallMatrix().with_row(0, {1: (0, 3)})
    matrix = matrix.with_row(1, {2: Entry(1, 3, boxed=2), 1: Entry(3, 3, boxed=3)})
    lines = ["0,1,0,3,,0.0", "1,1,3,3,3,1.0", "1,2,1,3,2,0.3333333333333333"]
    assert matrix.to_csv().splitlines() == [HEADER, *lines]


@given(matrices(), st.randoms(use_true_random=False))
def test_csv_round_trips_exactly_in_whatever_order_its_lines_come(
    matrix: RecallMatrix, random: Random
) -> None:
    header, *lines = matrix.to_csv().splitlines()
    random.shuffle(lines)
    again = RecallMatrix.from_csv("\n".join([header, *lines]))
    assert again == matrix
    assert again.to_csv() == matrix.to_csv()


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 1, "expected the header"),
        (f"{HEADER}\n1,1,5,10,0.5\n", 2, "expected 6 values"),
        (f"{HEADER}\n1,1,5,1_0,,0.5\n", 2, 'items is "1_0", not a whole number'),
        (f"{HEADER}\n1,1,1,3,,0.333\n", 2, 'accuracy is "0.333"'),
        (f"{HEADER}\n1,1,11,10,,1.1\n", 2, "11 correct of 10 items"),
        (f"{HEADER}\n1,1,5,10,x,0.5\n", 2, 'boxed is "x", not a whole number'),
        (f"{HEADER}\n1,3,5,10,,0.5\n", 2, "after 1 tasks only tasks 1 to 2"),
        (f"{HEADER}\n1,1,5,10,,0.5\n2,1,5,10,,0.5\n1,1,5,10,,0.5\n", 4, "appears a second time"),
        (f"{HEADER}\n1,²,5,10,,0.5\n", 2, 'on_task is "²", not a whole number'),
        # A file cut in the middle of a number.
        (f"{HEADER}\n1,1,5,10,,0.5\n2,1,25,100,,0.2", 3, '"0.2", but 25 of 100 is 0.25'),
    ],
)
def test_a_damaged_csv_is_refused_in_one_line_naming_file_and_line(
    tmp_path: Path, text: str, line: int, message: str
) -> None:
    path = tmp_path / "matrix.csv"
    path.write_text(text)
    error = line_of(RecallMatrix.load, path)
    assert error.startswith(f"{path} line {line}: ")
    assert message in error


def test_a_file_that_a_spreadsheet_saved_is_read(tmp_path: Path) -> None:
    """With a mark of its encoding before the header, and other ends of lines."""
    matrix = RecallMatrix().with_row(1, {1: (3, 4)})
    saved = matrix.to_csv().replace("\n", "\r\n")
    (tmp_path / "matrix.csv").write_bytes(saved.encode("utf-8-sig"))
    assert RecallMatrix.load(tmp_path / "matrix.csv") == matrix


def test_a_missing_or_binary_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HoldfastError, match="cannot be read"):
        RecallMatrix.load(tmp_path / "matrix.csv")
    (tmp_path / "matrix.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(HoldfastError, match="not text"):
        RecallMatrix.load(tmp_path / "matrix.csv")
