"""Cells, and what all executors of them share: messages, the progress of a cell, the loop.

A worker reports its progress in messages, JSON objects with their ``kind``:

- ``begins``; ``opened``, with the committed horizon; ``task``, with its number; ``event``, a text;
- ``finished``: the error or None, and whether the worker is sound;
- ``lost``, sent for a worker that has died: how it ended, and the end of its output;
- ``again``: the cell has to begin again, which does not count as a retry.
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from holdfast.core.config import sha256_of
from holdfast.core.errors import HoldfastError
from holdfast.core.files import make_folder, read_bytes, write_text_atomically
from holdfast.learning.config import RunConfig

Message = Mapping[str, Any]
LAST = ("finished", "lost", "again")  # kinds that end the messages on a cell
RETRIES = 2  # how often a cell begins again after its worker was lost


@dataclass(frozen=True)
class Cell:
    """One trajectory to be advanced to one horizon.

    candidate: the name of its settings without the seed, for tables; horizon: tasks to learn;
    tracker: the experiment tracker that its worker reports to; group: of its run there.
    """

    candidate: str
    config: RunConfig
    horizon: int
    tracker: str | None = None
    group: str | None = None

    @property
    def key(self) -> str:
        """The directory name of its trajectory; cells that differ only in the horizon share it.

        The key covers only settings known before anything is loaded; the trajectory itself refuses
        a directory with other settings, weights or tasks.
        """
        config = self.config
        identity = {
            "numbers": config.numbers(),
            "stream": config.stream.model_dump(mode="json", exclude={"tasks"}),
            "backbone": config.backbone.name,
            "revision": config.backbone.revision,
        }
        return f"{config.method}-{config.seed}-{sha256_of(identity)[:12]}"

    def directory(self, store: Path) -> Path:
        return store / self.key


def with_tracker(tracker: str | None, study: Path, cells: Sequence[Cell]) -> list[Cell]:
    """The cells with this tracker, in a group with the name of the study's directory."""
    group = study.resolve().name if tracker else None
    return [replace(cell, tracker=tracker, group=group) for cell in cells]


@dataclass(frozen=True)
class Outcome:
    """A cell that has ended, and why it failed, if it did."""

    cell: Cell
    error: str | None = None


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
    """Workers that advance cells in parallel, of one :func:`run_cells` at a time."""

    def begin(self, jobs: list[Job], store: Path, watch: Watch) -> list[Job]:
        """Prepare for these jobs; return those that an earlier call left running."""
        ...

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
    """The progress of one cell within one :func:`run_cells`.

    reached: tasks learned by now, None before a worker has opened the trajectory; losses: how many
    of its workers were lost.
    """

    cell: Cell
    directory: Path
    reached: int | None = None
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

    def hears(self, message: Message, watch: Watch) -> None:
        """Process a message of its worker; the last one sets the outcome, unless it retries."""
        kind = message["kind"]
        if kind == "begins":
            watch.started(self.cell)
        elif kind == "opened":
            horizon = message["horizon"]
            # A lost worker may have committed tasks without reporting them.
            for task in range(horizon if self.reached is None else self.reached, horizon):
                watch.task_done(self.cell, task + 1)
            self.reached = horizon
        elif kind == "task":
            self.reached = message["task"]
            watch.task_done(self.cell, message["task"])
        elif kind == "finished":
            self.outcome = Outcome(self.cell, message["error"])
        elif kind == "lost":
            self._lost(message["how"], message["words"], watch)
        elif "text" in message:
            watch.event(self.cell, message["text"])

    def _lost(self, how: str, words: str, watch: Watch) -> None:
        """how: the way the worker ended; words: the end of its output."""
        self.losses += 1
        if self.losses <= RETRIES:
            watch.event(self.cell, f"lost its worker ({how}); begins again where it stood")
            return
        watch.event(self.cell, f"lost its worker ({how}); given up")
        output = f"; it said last: {words}" if words else ""
        error = f"lost its worker {self.losses} times, the last time {how}{output}"
        self.outcome = Outcome(self.cell, error)


def run_cells(
    cells: Sequence[Cell], store: Path, executor: Executor, watch: Watch
) -> Iterator[Outcome]:
    """Yield the outcome of each cell as it finishes, each cell once; always end the workers.

    Cells start in the order given; those of one trajectory run one after another. A cell that fails
    has an outcome with an error and does not stop the others. A lost worker costs at most the task
    in progress: its cell is retried, up to ``RETRIES`` times. The results are in the store.
    Raises HoldfastError when no cell can be advanced at all. Closing the iterator (and Ctrl-C) ends
    the workers; only committed tasks remain.
    """
    jobs = [Job(cell, cell.directory(store)) for cell in cells]
    running = executor.begin(jobs, store, watch)
    waiting = [job for job in jobs if job not in running]
    try:
        while waiting or running:
            for job in executor.start(due(waiting, running)):
                waiting.remove(job)
                running.append(job)
            for job, message in executor.messages():
                job.hears(message, watch)
                if message["kind"] not in LAST:
                    continue
                running.remove(job)
                if job.outcome is None:
                    waiting.insert(0, job)
                else:
                    yield job.outcome
    finally:
        executor.end()


def due(waiting: Iterable[Job], running: Iterable[Job]) -> list[Job]:
    """The waiting jobs that may start, in the order given: one at a time per trajectory."""
    busy = {job.directory for job in running}
    free = []
    for job in waiting:
        if job.directory not in busy:
            busy.add(job.directory)
            free.append(job)
    return free


def check_workers(workers: int | None) -> None:
    """Raise HoldfastError for no workers, for which a study would wait for ever."""
    if workers is not None and workers < 1:
        raise HoldfastError(f"{workers} workers; give at least 1")


def environment(threads: int, device: str | None = None) -> dict[str, str]:
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


def unseen(order: Mapping[str, Any], mark: str) -> str | None:
    """Why this node must not learn into an order's store, whose id is ``mark``; None if it may."""
    store = Path(order["directory"]).parent
    path = store / ".store"
    if path.is_file() and path.read_text(encoding="utf-8") == mark:
        return None
    return (
        f"node {socket.gethostname()} does not see {store}; put the store where all nodes see it "
        "(--store)"
    )
