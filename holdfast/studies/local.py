"""Advance cells in parallel by worker processes on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path

from holdfast.core.errors import HoldfastError
from holdfast.core.files import make_folder
from holdfast.studies.cell import Cell, Outcome
from holdfast.studies.executor import (
    LAST,
    Job,
    Message,
    Watch,
    check_counts,
    environment,
    run_jobs,
)
from holdfast.studies.worker import LOOK, WorkerProcess


class LocalExecutor:
    """An executor whose workers are processes on this machine, each reused for many cells.

    workers: how many at once; None: one, or with ``devices`` as many as fit; devices: the GPUs, as
    in ``CUDA_VISIBLE_DEVICES``, with at most ``workers_per_gpu`` workers each; retries: how often a
    cell is retried after its worker died; threads: of each worker; None: one on the CPU, an equal
    share of the cores with GPUs. Rounding depends on the number of threads: with one, results do
    not depend on the number of workers, and more workers use the cores better than more threads.
    Raises HoldfastError when there would be no worker, or more than fit on the GPUs.
    """

    def __init__(
        self,
        workers: int | None = None,
        *,
        devices: Sequence[str] | None = None,
        workers_per_gpu: int = 1,
        retries: int = 2,
        threads: int | None = None,
    ) -> None:
        check_counts(retries, workers=workers, workers_per_gpu=workers_per_gpu, threads=threads)
        if devices is None:
            places: list[str | None] = [None] * (workers or 1)
        elif not devices:
            raise HoldfastError("devices is empty; name a GPU, or leave it out")
        else:
            room = [*devices] * workers_per_gpu
            if workers is not None and workers > len(room):
                raise HoldfastError(
                    f"{workers} workers on {len(devices)} GPUs of {workers_per_gpu} each; give at "
                    f"most {len(room)}, or more workers a GPU"
                )
            places = [*room[:workers]]  # fewer workers than fit are spread over all GPUs
        share = 1 if devices is None else max(1, usable_cores() // len(places))
        self._environments = [environment(threads or share, device) for device in places]
        self._retries = retries

    def map(self, cells: Sequence[Cell], store: Path, watch: Watch) -> Iterator[Outcome]:
        """Yield the outcome of each cell as it finishes.

        Raises HoldfastError when no worker can be started.
        See :class:`~holdfast.studies.executor.Executor`.
        """
        make_folder(store)
        jobs = [Job(cell, cell.directory(store)) for cell in cells]
        trajectories = len({job.directory for job in jobs})
        places = [_Place(variables) for variables in self._environments[:trajectories]]
        return run_jobs(jobs, [], _LocalWorkers(places, self._retries), self._retries, watch)


@dataclass(eq=False)
class _Place:
    """A place for a worker. failures: consecutive workers that died before they began a cell."""

    environment: dict[str, str]
    worker: WorkerProcess | None = None
    job: Job | None = None
    failures: int = 0


class _LocalWorkers:
    def __init__(self, places: list[_Place], retries: int) -> None:
        self._places = places
        self._retries = retries

    def start(self, due: list[Job]) -> list[Job]:
        free = [place for place in self._places if place.job is None]
        free.sort(key=lambda place: (place.worker is None, place.failures))
        for place, job in zip(free, due, strict=False):
            place.worker, place.job = place.worker or WorkerProcess(place.environment), job
            place.worker.send(job.order())
        return due[: len(free)]

    def messages(self) -> Iterator[tuple[Job, Message]]:
        busy = [(place, place.worker, place.job) for place in self._places]
        wait([worker.channel for _, worker, job in busy if worker and job], LOOK)
        for place, worker, job in busy:
            if worker is None or job is None:
                continue
            for message in worker.hear():
                if message["told"] in LAST:
                    place.job, place.worker = None, worker if worker.sound else None
                yield job, message if worker.heard else self._never_began(place, message)
            place.failures = 0 if worker.heard else place.failures

    def _never_began(self, place: _Place, lost: Message) -> Message:
        """The message for a worker that died while loading its libraries: its cell begins again."""
        place.failures += 1
        if place.failures <= self._retries:
            return {"told": "again"}
        self._places.remove(place)
        if not self._places:
            raise HoldfastError(
                f"workers die before they are ready ({lost['how']}); the last one said: "
                f"{lost['words'] or 'nothing'}; see what holdfast doctor says"
            )
        return {
            "told": "again",
            "text": f"one worker fewer: it dies before it is ready ({lost['how']})",
        }

    def end(self) -> None:
        for place in self._places:
            if place.worker:
                place.worker.end()


def usable_gpus() -> list[str]:
    """The GPUs that this process may use, as ``CUDA_VISIBLE_DEVICES`` names them."""
    import torch

    count = torch.cuda.device_count()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return [str(index) for index in range(count)]
    return [name.strip() for name in visible.split(",")][:count]


def usable_cores() -> int:
    """The processor cores that this process may use, on systems that say so; else all."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
