"""Bring cells to their horizons, and read what they scored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from holdfast.learning.trajectory import Trajectory
from holdfast.results import RecallMatrix
from holdfast.streams import Stream
from holdfast.studies.cell import Cell, Outcome
from holdfast.studies.executor import Executor, Watch


def advance(
    cells: Sequence[Cell],
    stream: Stream,
    store: Path,
    executor: Executor,
    watch: Watch,
    since: int = 0,
) -> Iterator[Outcome]:
    """Yield every cell's outcome, first of those that are there already and cost nothing.

    stream: of all the cells, with at least as many tasks as their horizons; since: the horizon
    that they were brought to before. Raises HoldfastError when a directory of the store holds a
    trajectory with other settings or other tasks than its cell, before anything is learned.
    """
    opened = [_open(cell, stream, store) for cell in cells]
    missing = [max(0, cell.horizon - one.horizon) for cell, one in zip(cells, opened, strict=True)]
    watch.begins(len(cells), sum(cell.horizon - since for cell in cells), sum(missing))
    for cell, one, tasks in zip(cells, opened, missing, strict=True):
        if not tasks:
            one.advance(cell.horizon)  # a killed process may have left its tables unwritten
            outcome = Outcome(cell, learned=0, seconds=0.0)
            watch.finished(outcome)
            yield outcome
    waiting = [cell for cell, tasks in zip(cells, missing, strict=True) if tasks]
    if waiting:
        for outcome in executor.map(waiting, store, watch):
            watch.finished(outcome)
            yield outcome


def measured(
    outcome: Outcome, stream: Stream, store: Path
) -> tuple[RecallMatrix | None, str | None]:
    """A cell's recall matrix up to its horizon, wherever its trajectory has come since.

    Or None and why: the cell failed, or its last row was not observed.
    """
    cell = outcome.cell
    if outcome.error is not None:
        return None, outcome.error
    matrix = _open(cell, stream, store).matrix
    if cell.horizon not in matrix.observed_rows:
        return None, (
            f"{cell.directory(store)}: recall was not measured after task {cell.horizon}; ask for "
            "another horizon, or learn it elsewhere with evaluation.rows=every"
        )
    return matrix.up_to(cell.horizon), None


def _open(cell: Cell, stream: Stream, store: Path) -> Trajectory:
    return Trajectory(cell.config, cell.directory(store), stream=stream)
