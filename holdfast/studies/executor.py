"""The interface of executors, which advance the cells of a study."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from holdfast.core.errors import HoldfastError
from holdfast.studies.cell import Cell, Outcome


class Watch:
    """Receives progress reports on cells. This class ignores them."""

    def begins(self, cells: int, tasks: int, missing: int) -> None:
        """``cells`` cells begin, with ``tasks`` tasks in total, ``missing`` of them not learned."""

    def started(self, cell: Cell) -> None:
        """A worker starts a cell, or restarts it after a worker was lost."""

    def task_done(self, cell: Cell, task: int) -> None:
        """Task ``task`` of a cell is learned and committed."""

    def event(self, cell: Cell, text: str) -> None:
        """A one-line message for the user, such as a lost worker or a note of the learner."""

    def finished(self, outcome: Outcome) -> None:
        """A cell has reached its horizon, or failed."""


class Executor(Protocol):
    """Advances cells in parallel; their results are in the store, not in the returned values."""

    def map(self, cells: Sequence[Cell], store: Path, watch: Watch) -> Iterator[Outcome]:
        """Yield the outcome of each cell as it finishes, each cell once.

        A cell that fails has an outcome with an error and does not stop the others. A lost worker
        costs at most the task in progress: its cell is retried, up to ``retries`` times. Raises
        HoldfastError when no cell can be advanced at all. Closing the iterator (and Ctrl-C) ends
        the workers; only committed tasks remain.
        """
        ...


def check_counts(retries: int, **counts: int | None) -> None:
    """Raise HoldfastError for negative retries or a count below 1; None is not checked."""
    for name, number in counts.items():
        if number is not None and number < 1:
            raise HoldfastError(f"{name} is {number}; it must be at least 1")
    if retries < 0:
        raise HoldfastError(f"retries is {retries}; it must be at least 0")
