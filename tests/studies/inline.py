"""An executor without processes: fast, and as mortal as a test wants it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from holdfast import Trajectory
from holdfast.core.errors import HoldfastError
from holdfast.learning.progress import Progress
from holdfast.studies.executor import Cell, Outcome, Watch


class Killed(BaseException):
    pass


class Inline:
    """Advances cells one after the other, last one first, so that no order is relied on.

    fails: the error of a cell, or None; lives: tasks learned before the process is killed.
    """

    def __init__(
        self, fails: Callable[[Cell], str | None] = lambda _: None, lives: int | None = None
    ) -> None:
        self._fails = fails
        self._left = lives
        self.learned: list[tuple[str, int]] = []

    def map(self, cells: Sequence[Cell], store: Path, watch: Watch) -> Iterator[Outcome]:
        for cell in reversed(cells):
            watch.started(cell)
            error = self._fails(cell)
            if error is not None:
                yield Outcome(cell, error)
                continue
            trajectory = Trajectory(cell.config, cell.directory(store))
            try:
                for horizon in range(trajectory.horizon + 1, cell.horizon + 1):
                    self._live(cell, horizon)
                    trajectory.advance(horizon, Progress())
                    watch.task_done(cell, horizon)
            except HoldfastError as mistake:
                yield Outcome(cell, str(mistake))
                continue
            yield Outcome(cell)

    def _live(self, cell: Cell, horizon: int) -> None:
        if self._left is not None:
            if self._left == 0:
                raise Killed
            self._left -= 1
        self.learned.append((cell.key, horizon))
