"""An executor without processes: fast, and as mortal as a test wants it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from holdfast import Trajectory
from holdfast.core.errors import HoldfastError
from holdfast.learning.progress import Progress
from holdfast.studies.executor import Cell, Job, Message, Watch


class Killed(BaseException):
    pass


class Inline:
    """Advances cells one after the other, last one first, so that no order is relied on.

    fails: the error of a cell, or None; lives: tasks learned before the process is killed.
    """

    def __init__(
        self, fails: Callable[[Cell], str | None] = lambda _: None, lives: int | None = None
    ) -> None:
        self._fails, self._left = fails, lives
        self.learned: list[tuple[str, int]] = []

    def begin(self, jobs: list[Job], store: Path, watch: Watch) -> list[Job]:
        return []

    def start(self, due: list[Job]) -> list[Job]:
        self._due = due
        return due

    def messages(self) -> Iterator[tuple[Job, Message]]:
        for job in reversed(self._due):
            yield job, {"kind": "begins"}
            error = self._fails(job.cell)
            if error is None:
                try:
                    for task in self._tasks(job):
                        yield job, {"kind": "task", "task": task}
                except HoldfastError as mistake:
                    error = str(mistake)
            yield job, {"kind": "finished", "error": error}

    def _tasks(self, job: Job) -> Iterator[int]:
        trajectory = Trajectory(job.cell.config, job.directory)
        for task in range(trajectory.horizon + 1, job.cell.horizon + 1):
            if self._left is not None:
                if self._left == 0:
                    raise Killed
                self._left -= 1
            self.learned.append((job.cell.key, task))
            trajectory.advance(task, Progress())
            yield task

    def end(self) -> None:
        pass
