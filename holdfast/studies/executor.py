"""What all executors share: their interface, the progress of a cell, and the loop that runs cells.

A worker reports its progress in messages, JSON objects with their kind in ``told``:

- ``begins``; ``opened``, with the committed horizon; ``task``, with its number; ``event``, a text;
- ``finished``: the horizon, the error or None, and whether the worker is sound;
- ``lost``, sent for a worker that has died: how it ended, and the end of its output;
- ``again``: the cell has to begin again, which does not count as a retry.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from holdfast.core.errors import HoldfastError
from holdfast.core.files import make_folder, read_bytes, write_text_atomically
from holdfast.studies.cell import Cell, Outcome

Message = Mapping[str, Any]
LAST = ("finished", "lost", "again")  # kinds that end the messages on a cell


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

        Cells start in the order given; those of one trajectory run one after another. A cell that
        fails has an outcome with an error and does not stop the others. A lost worker costs at most
        the task in progress: its cell is retried, up to ``retries`` times. Raises HoldfastError
        when no cell can be advanced at all. Closing the iterator (and Ctrl-C) ends the workers;
        only committed tasks remain.
        """
        ...


class Workers(Protocol):
    """The workers of one ``Executor.map``."""

    def start(self, due: list[Job]) -> list[Job]:
        """Start the first of these jobs, as many as there is room for; return those started."""
        ...

    def messages(self) -> Iterable[tuple[Job, Message]]:
        """The messages received, after waiting a moment for one."""
        ...

    def end(self) -> None:
        """End all workers."""
        ...


@dataclass(eq=False)
class Job:
    """The progress of one cell within one ``Executor.map``.

    began: time of the first start, in perf_counter seconds; begin, reached: tasks learned before
    this call, and by now; losses: how many of its workers were lost.
    """

    cell: Cell
    directory: Path
    began: float | None = None
    begin: int | None = None
    reached: int = 0
    losses: int = 0
    outcome: Outcome | None = None

    def order(self) -> dict[str, Any]:
        """The order to a worker to advance this cell, as JSON values.

        folder: the directory that the configuration's relative paths start from; track: arguments
        of ``holdfast.tracking.tracking.tracked`` that name the run and its tracker.
        """
        cell = self.cell
        return {
            "config": cell.config.model_dump(mode="json"),
            "horizon": cell.horizon,
            "directory": str(self.directory.absolute()),
            "folder": os.getcwd(),
            "track": {
                "tracker": cell.tracker,
                "name": f"{cell.candidate} seed {cell.config.seed}",
                "group": cell.group,
            },
        }

    def hears(self, message: Message, retries: int, watch: Watch) -> bool:
        """Process a message of its worker; return whether it was the last one.

        After the last one ``outcome`` is set, unless the cell has to begin again.
        """
        kind = message["told"]
        if kind == "begins":
            self.began = self.began or time.perf_counter()
            watch.started(self.cell)
        elif kind == "opened":
            if self.begin is None:
                self.begin = message["horizon"]
            else:  # the lost worker may have committed tasks without reporting them
                for task in range(self.reached + 1, message["horizon"] + 1):
                    watch.task_done(self.cell, task)
            self.reached = message["horizon"]
        elif kind == "task":
            self.reached = message["task"]
            watch.task_done(self.cell, message["task"])
        elif kind == "finished":
            if message["horizon"] is not None:
                self.begin = message["horizon"] if self.begin is None else self.begin
                self.reached = message["horizon"]
            self._ends(message["error"])
        elif kind == "lost":
            self._lost(message["how"], message["words"], retries, watch)
        elif "text" in message:
            watch.event(self.cell, message["text"])
        return kind in LAST

    def _lost(self, how: str, words: str, retries: int, watch: Watch) -> None:
        """how: the way the worker ended; words: the end of its output."""
        self.losses += 1
        if self.losses <= retries:
            watch.event(self.cell, f"lost its worker ({how}); begins again where it stood")
            return
        watch.event(self.cell, f"lost its worker ({how}); given up")
        times = "once" if self.losses == 1 else f"{self.losses} times"
        output = f"; it said last: {words}" if words else ""
        self._ends(f"lost its worker {times}, the last time {how}{output}")

    def _ends(self, error: str | None) -> None:
        seconds = 0.0 if self.began is None else time.perf_counter() - self.began
        self.outcome = Outcome(self.cell, self.reached - (self.begin or 0), seconds, error)


def run_jobs(
    waiting: list[Job], running: list[Job], workers: Workers, retries: int, watch: Watch
) -> Iterator[Outcome]:
    """Yield each job's outcome as it finishes; always end the workers."""
    try:
        while waiting or running:
            for job in workers.start(due(waiting, running)):
                waiting.remove(job)
                running.append(job)
            for job, message in workers.messages():
                if job.hears(message, retries, watch):
                    running.remove(job)
                    if job.outcome is None:
                        waiting.insert(0, job)
                    else:
                        yield job.outcome
    finally:
        workers.end()


def due(waiting: Iterable[Job], running: Iterable[Job]) -> list[Job]:
    """The waiting jobs that may start, in the order given: one at a time per trajectory."""
    busy = {job.directory for job in running}
    free = []
    for job in waiting:
        if job.directory not in busy:
            busy.add(job.directory)
            free.append(job)
    return free


def check_counts(retries: int, **counts: int | None) -> None:
    """Raise HoldfastError for negative retries or a count below 1; None is not checked."""
    for name, number in counts.items():
        if number is not None and number < 1:
            raise HoldfastError(f"{name} is {number}; it must be at least 1")
    if retries < 0:
        raise HoldfastError(f"retries is {retries}; it must be at least 0")


def environment(threads: int, device: str | None) -> dict[str, str]:
    """The environment variables that a worker needs before it imports torch."""
    # OpenMP and MKL each fall back to the other's variable, so set both.
    variables = {name: str(threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    variables["TOKENIZERS_PARALLELISM"] = "false"
    return variables if device is None else {**variables, "CUDA_VISIBLE_DEVICES": device}


def store_mark(store: Path) -> str:
    """The random id in a store's file .store; a node that reads another id sees another store."""
    path = store / ".store"
    if not path.exists():
        make_folder(store)
        write_text_atomically(path, uuid.uuid4().hex)
    return read_bytes(path).decode()


def unseen(store: str, mark: str) -> str | None:
    """Why this node must not learn into the store whose id is ``mark``; None if it may."""
    path = Path(store, ".store")
    if path.is_file() and path.read_text(encoding="utf-8") == mark:
        return None
    return (
        f"node {socket.gethostname()} does not see {store}; put the store where all nodes see it "
        "(--store)"
    )
