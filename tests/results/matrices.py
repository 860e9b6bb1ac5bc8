"""Recall matrices to test with: written by hand, or drawn at random."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from holdfast.results import Entry, RecallMatrix

SIZES = st.integers(1, 60)


def dense(accuracies: Sequence[Sequence[float]], items: int = 100) -> RecallMatrix:
    """Rows 1, 2, ... of accuracies on tasks 1, 2, ..., each a multiple of 1 / items."""
    matrix = RecallMatrix()
    for after_task, row in enumerate(accuracies, start=1):
        counts = {task: (round(value * items), items) for task, value in enumerate(row, start=1)}
        matrix = matrix.with_row(after_task, counts)
    return matrix


@st.composite
def matrices(
    draw: st.DrawFn,
    *,
    complete: bool = False,
    smallest: int = 0,
    largest: int = 7,
    items: st.SearchStrategy[int] = SIZES,
) -> RecallMatrix:
    """Any matrix; complete: rows 1..T hold at least tasks 1..T (row 0 and task i + 1 may lack).

    smallest, largest: bounds of the horizon (of a complete one; others may end earlier);
    items: the size of a task.
    """
    horizon = draw(st.integers(smallest, largest))
    tasks = horizon + 1
    sizes = draw(st.lists(items, min_size=tasks, max_size=tasks))
    matrix = RecallMatrix()
    for after_task in range(horizon + 1):
        row = {}
        for task in range(1, after_task + 2):
            needed = complete and task <= after_task
            if needed or draw(st.booleans()):
                size = sizes[task - 1]
                correct = draw(st.integers(0, size))
                row[task] = Entry(correct, size, draw(st.none() | st.integers(correct, size)))
        if row:
            matrix = matrix.with_row(after_task, row)
    return matrix
