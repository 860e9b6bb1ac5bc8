"""The workers of one ``Executor.map``: assign cells to them, restart cells when one dies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.studies.cell import Outcome
from holdfast.studies.executor import Watch
from holdfast.studies.job import Job, due
from holdfast.studies.workers.process import WorkerProcess, end_all, manner

_LOOK = 1.0  # seconds between checks of workers that send nothing


@dataclass(eq=False)
class Slot:
    """A place for a worker. failures: consecutive workers that died before they were ready."""

    environment: dict[str, str]
    worker: WorkerProcess | None = None
    ready: bool = False
    job: Job | None = None
    failures: int = 0

    def start(self) -> None:
        """Start a worker; HoldfastError when the system refuses."""
        try:
            self.worker = WorkerProcess(self.environment)
        except OSError as error:
            raise HoldfastError(
                f"no worker can be started ({error.strerror}); ask for fewer workers"
            ) from error

    def clear(self) -> tuple[str, str]:
        """End the worker; return how it ended, and the end of its output."""
        assert self.worker is not None
        code, words = self.worker.end(), self.worker.last_words()
        self.worker.close()
        self.worker, self.ready, self.job = None, False, None
        return manner(code), words


class Shift:
    """Runs all jobs to their outcomes. slots: one for each worker."""

    def __init__(self, jobs: list[Job], slots: list[Slot], retries: int, watch: Watch) -> None:
        self._waiting = jobs
        # No more workers than trajectories: one trajectory is advanced by one worker at a time.
        self._slots = slots[: len({job.directory for job in jobs})]
        self._retries = retries
        self._watch = watch

    def outcomes(self) -> Iterator[Outcome]:
        """Yield each cell's outcome as it finishes; always ends all workers."""
        try:
            self._assign()
            while self._waiting or any(slot.job for slot in self._slots):
                finished = self._listen()
                self._assign()
                yield from finished
        finally:
            end_all(slot.worker for slot in self._slots if slot.worker)

    def _assign(self) -> None:
        """Give waiting cells to free workers, and start workers for the remaining cells."""
        busy = [slot.job for slot in self._slots if slot.job]
        free = [slot for slot in self._slots if not slot.job and slot.failures <= self._retries]
        free.sort(key=_readiness)
        for slot, job in zip(free, due(self._waiting, busy), strict=False):
            if slot.worker is None:
                slot.start()
            elif slot.ready:
                self._waiting.remove(job)
                slot.job = job
                slot.worker.send(job.order())
                job.starts(self._watch)

    def _listen(self) -> list[Outcome]:
        """Wait until a worker sends a message or dies; return the resulting outcomes."""
        outcomes: list[Outcome | None] = []
        staffed = [(slot, slot.worker) for slot in self._slots if slot.worker]
        wait([worker.fileno() for _, worker in staffed], _LOOK)
        for slot, worker in staffed:
            gone = worker.gone()  # checked before hear(), so that no final message is missed
            outcomes += [self._take(slot, message) for message in worker.hear()]
            if gone and slot.worker is worker:
                outcomes.append(self._lose(slot))
        return [outcome for outcome in outcomes if outcome]

    def _take(self, slot: Slot, message: dict[str, Any]) -> Outcome | None:
        if message["told"] == "ready":
            slot.ready, slot.failures = True, 0
            return None
        assert slot.job is not None
        outcome = slot.job.hears(message, self._watch)
        if outcome:
            slot.job = None
            if not message["sound"]:
                slot.clear()
        return outcome

    def _lose(self, slot: Slot) -> Outcome | None:
        """Handle a worker's death: its cell is retried first, or fails after too many losses."""
        job, was_ready = slot.job, slot.ready
        how, words = slot.clear()
        if not was_ready:
            self._count_failure(slot, how, words)
        if job is None:
            return None
        outcome = job.lost(how, words, self._retries, self._watch)
        if outcome is None:
            self._waiting.insert(0, job)
        return outcome

    def _count_failure(self, slot: Slot, how: str, words: str) -> None:
        slot.failures += 1
        if slot.failures <= self._retries:
            return
        if all(other.failures > self._retries for other in self._slots):
            raise HoldfastError(
                f"workers die before they are ready ({how}); the last one said: "
                f"{words or 'nothing'}; see what holdfast doctor says"
            )
        unfinished = [other.job for other in self._slots if other.job] + self._waiting
        if unfinished:
            text = f"one worker fewer: it dies before it is ready ({how})"
            self._watch.event(unfinished[0].cell, text)


def _readiness(slot: Slot) -> tuple[bool, bool, int]:
    """Sort key: ready workers first, then starting ones, then slots with the fewest failures."""
    return not slot.ready, slot.worker is None, slot.failures
