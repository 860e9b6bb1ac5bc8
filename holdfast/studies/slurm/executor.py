"""Advance cells by jobs of a Slurm cluster.

submitit submits; the work of a job is that of a worker of the local executor. A job tells its
progress in a file, so that it needs nothing of this process, which may end and be started again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.core.errors import HoldfastError
from holdfast.studies.cell import Cell, Outcome
from holdfast.studies.executor import Watch, check_counts
from holdfast.studies.job import Job, due
from holdfast.studies.shared_store import store_mark
from holdfast.studies.slurm.parameters import SlurmParameters
from holdfast.studies.slurm.queue import Cluster, JobQueue
from holdfast.studies.slurm.work import AdvanceCell, Messages

if TYPE_CHECKING:
    from holdfast.studies.slurm.queue import Handle

_LOOK = 1.0  # seconds between looks at the messages
_FILES = 100  # files of messages read a second at most, for the file server's sake
_ASK = 15.0  # seconds between questions to Slurm
_ARRAY = 1000  # jobs in an array at most; Slurm's own bound is 1001 unless configured
_PAUSE = 60.0  # seconds until a refused submission is tried again, while others run


@dataclass(eq=False)
class _Submitted:
    """A cell whose job is in the queue."""

    job: Job
    handle: Handle
    messages: Messages


class SlurmExecutor:
    """An executor whose cells are jobs of a Slurm cluster.

    folder: for logs and submitit's files; all nodes must see it and the store under the same paths,
    and have holdfast installed. parameters: what a job asks of Slurm; workers: the most jobs that
    run at once, None for as many as Slurm lets run; threads: of each job; retries: how often a cell
    is submitted again after its job was lost. A job that Slurm preempts or that uses up its time
    goes on later and does not count as lost; one that the user cancels is not submitted again.
    cluster: another than Slurm, for tests; see :class:`~holdfast.studies.slurm.queue.JobQueue`.

    Raises HoldfastError when there would be no worker, submitit is not installed, or there is no
    Slurm.
    """

    def __init__(
        self,
        folder: Path,
        parameters: SlurmParameters | None = None,
        *,
        workers: int | None = None,
        threads: int = 1,
        retries: int = 2,
        cluster: Cluster = "slurm",
    ) -> None:
        check_counts(retries, workers=workers, threads=threads)
        self._folder = folder.absolute()
        self._parameters = parameters or SlurmParameters()
        self._queue = JobQueue(cluster, self._folder, self._parameters, threads)
        self._workers = workers
        self._retries = retries
        self._submit_after = 0.0

    def map(self, cells: Sequence[Cell], store: Path, watch: Watch) -> Iterator[Outcome]:
        """Yield the outcome of each cell as it finishes; one job array for all that may start.

        Cells of one trajectory run one after another. A cell whose job an earlier call has
        submitted, and which still lives, is not submitted again.
        See :class:`~holdfast.studies.executor.Executor`.
        """
        store = store.absolute()
        self._folder.mkdir(parents=True, exist_ok=True)
        mark = store_mark(store)
        waiting = [Job(cell, cell.directory(store)) for cell in cells]
        going = self._found(waiting, watch)
        asked = 0.0
        try:
            while waiting or going:
                going += self._submit(waiting, going, mark, watch)
                living = None
                if time.monotonic() - asked >= _ASK:
                    living = self._queue.living(one.handle for one in going)
                    asked = time.monotonic()
                for one in list(going):
                    outcome, ended = self._hear(one, living, watch)
                    if ended:
                        going.remove(one)
                        if outcome is None:
                            waiting.insert(0, one.job)
                    if outcome:
                        yield outcome
                if going or waiting:
                    time.sleep(max(_LOOK, len(going) / _FILES))
        finally:
            self._queue.cancel(one.handle for one in going)

    def _found(self, waiting: list[Job], watch: Watch) -> list[_Submitted]:
        """The cells whose jobs of an earlier call still live; takes them out of ``waiting``."""
        found = []
        for job in list(waiting):
            messages = Messages(self._path(job))
            told = messages.new()
            places = [place for place, one in enumerate(told) if one["told"] == "submitted"]
            since = told[places[-1] :] if places else []
            if since and not any(one["told"] == "finished" for one in since):
                found.append((_Submitted(job, self._queue.again(since[0]["job"]), messages), since))
        living = self._queue.living(one.handle for one, _ in found) if found else set()
        going = []
        for one, since in found:
            if one.handle.job_id in living:
                waiting.remove(one.job)
                going.append(one)
                watch.event(one.job.cell, f"its job {one.handle.job_id} of an earlier call goes on")
                if any(message["told"] == "begins" for message in since):
                    one.job.starts(watch)
                for message in since:
                    one.job.hears(message, Watch())  # what was learned before is counted already
        return going

    def _submit(
        self, waiting: list[Job], going: list[_Submitted], mark: str, watch: Watch
    ) -> list[_Submitted]:
        """Submit the cells that may start, as one array; takes them out of ``waiting``."""
        wave = due(waiting, [one.job for one in going])[:_ARRAY]
        parallel = len(wave)
        if self._workers is not None:
            parallel = self._workers - len(going)
            # An array of its own keeps to `workers`; beside another, only what there is room for.
            wave = wave if not going else wave[: max(0, parallel)]
        if not wave or time.monotonic() < self._submit_after:
            return []
        files = [Messages(self._path(job)) for job in wave]
        for messages in files:
            messages.new()  # those of earlier jobs
        try:
            handles = self._queue.submit([self._work(job, mark) for job in wave], parallel)
        except HoldfastError as error:
            if not going:
                raise
            self._submit_after = time.monotonic() + _PAUSE
            watch.event(wave[0].cell, f"{error}; tried again in a minute")
            return []
        for job, handle, messages in zip(wave, handles, files, strict=True):
            waiting.remove(job)
            messages.tell("submitted", job=handle.job_id)
        return [_Submitted(*one) for one in zip(wave, handles, files, strict=True)]

    def _work(self, job: Job, mark: str) -> AdvanceCell:
        return AdvanceCell(
            job.order(),
            str(self._path(job)),
            str(job.directory.parent),
            mark,
            self._parameters.timeout_min,
        )

    def _path(self, job: Job) -> Path:
        return self._folder / f"{job.cell.key}-{job.cell.horizon}.jsonl"

    def _hear(
        self, one: _Submitted, living: set[str] | None, watch: Watch
    ) -> tuple[Outcome | None, bool]:
        """Process a cell's new messages: its outcome, if any, and whether its job has ended.

        living: the jobs in the queue, as told before the messages are read; None if not asked.
        """
        for message in one.messages.new():
            if message["told"] == "begins":
                one.job.starts(watch)
            outcome = one.job.hears(message, watch)
            if outcome:
                self._queue.withdraw(one.handle)
                return outcome, True
        if living is None or one.handle.job_id in living:
            return None, False
        state, words = self._queue.ending(one.handle)
        if state.startswith("PREEMPTED"):  # by a cluster that does not queue such jobs again
            watch.event(one.job.cell, "preempted; submitted again, goes on where it stood")
            return None, True
        how = f"job {one.handle.job_id} ended{f' as {state}' if state else ''}"
        retries = 0 if state.startswith("CANCELLED") else self._retries
        return one.job.lost(how, words, retries, watch), True
