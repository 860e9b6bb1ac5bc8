"""Advance cells to their horizons, and read their recall."""

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
    """Yield the outcome of every cell, beginning with those that have reached their horizon.

    stream: of all the cells, with at least as many tasks as their horizons; since: the horizon
    to which they were advanced before. Raises HoldfastError, before anything is learned, when a
    directory of the store holds a trajectory with other settings or other tasks than its cell.
    """
    opened = [_open(cell, stream, store) for cell in cells]
    missing = [max(0, cell.horizon - one.horizon) for cell, one in zip(cells, opened, strict=True)]
    watch.begins(len(cells), sum(cell.horizon - since for cell in cells), sum(missing))
    for cell, one, tasks in zip(cells, opened, missing, strict=True):
        if not tasks:
            one.advance(cell.horizon)  # writes tables that a killed process may have left out
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
    """A cell's recall matrix up to its horizon, even if its trajectory has gone further, and None.

    Or None and the reason: the cell failed, or recall was not measured at its horizon.
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
