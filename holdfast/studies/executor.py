"""Who advances the cells of a study: the contract."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from holdfast.core.errors import HoldfastError
from holdfast.studies.cell import Cell, Outcome


class Watch:
    """Hears how the cells fare. This one keeps silent."""

    def begins(self, cells: int, tasks: int, missing: int) -> None:
        """So many cells are next, of ``tasks`` tasks together; ``missing`` are not yet learned."""

    def started(self, cell: Cell) -> None:
        """A worker begins with a cell, or begins again after it was lost."""

    def task_done(self, cell: Cell, task: int) -> None:
        """Task ``task`` of a cell is learned and committed."""

    def event(self, cell: Cell, text: str) -> None:
        """Something the user should know, in one line: a lost worker, a remark of the learner."""

    def finished(self, outcome: Outcome) -> None:
        """A cell has come to its horizon, or failed."""


class Executor(Protocol):
    """Advances cells side by side; their results lie in the store, not in what is returned."""

    def map(self, cells: Sequence[Cell], store: Path, watch: Watch) -> Iterator[Outcome]:
        """Yield the outcome of each cell as it finishes, each cell once.

        A cell that fails has an outcome with an error and does not stop the others. A lost worker
        costs at most the task in progress: its cell is given to another, ``retries`` times. Raises
        HoldfastError when no cell can be advanced at all. Closing the iterator (and Ctrl-C) ends
        the workers and leaves nothing behind but what is committed.
        """
        ...


def check_counts(retries: int, **counts: int | None) -> None:
    """Raise HoldfastError for negative retries or a count below 1; None is not a count."""
    for name, number in counts.items():
        if number is not None and number < 1:
            raise HoldfastError(f"{name} is {number}; it must be at least 1")
    if retries < 0:
        raise HoldfastError(f"retries is {retries}; it must be at least 0")
