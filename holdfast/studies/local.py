"""Advance cells in parallel by worker processes on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path

from holdfast.core.errors import HoldfastError
from holdfast.core.files import make_folder
from holdfast.studies.executor import LAST, RETRIES, Job, Message, Watch, check_workers, environment
from holdfast.studies.worker import LOOK, WorkerProcess


@dataclass(eq=False)
class _Place:
    """A place for a worker. failures: consecutive workers that died before they began a cell."""

    environment: dict[str, str]
    worker: WorkerProcess | None = None
    job: Job | None = None
    failures: int = 0


class LocalExecutor:
    """An executor whose workers are processes on this machine, each reused for many cells.

    workers: how many at once; None: one, or with ``devices`` as many as fit; devices: the GPUs, as
    in ``CUDA_VISIBLE_DEVICES``, with at most ``workers_per_gpu`` workers each; none for the CPU;
    threads: of each worker; None: one on the CPU, an equal share of the cores with GPUs.
    Rounding depends on the number of threads: with one, results do not depend on the number of
    workers, and more workers use the cores better than more threads.
    Raises HoldfastError for more workers than fit on the GPUs.
    """

    def __init__(
        self,
        workers: int | None = None,
        *,
        devices: Sequence[str] = (),
        workers_per_gpu: int = 1,
        threads: int | None = None,
    ) -> None:
        check_workers(workers)
        places: list[str | None] = [*devices] * workers_per_gpu or [None] * (workers or 1)
        if workers is not None and workers > len(places):
            raise HoldfastError(
                f"{workers} workers on {len(devices)} GPUs of {workers_per_gpu} each; give at "
                f"most {len(places)}, or more workers a GPU"
            )
        places = places[:workers]  # fewer workers than fit are spread over all GPUs
        share = max(1, usable_cores() // len(places)) if devices else 1
        self._environments = [environment(threads or share, place) for place in places]
        self._places: list[_Place] = []

    def begin(self, jobs: list[Job], store: Path, watch: Watch) -> list[Job]:
        make_folder(store)
        trajectories = len({job.directory for job in jobs})
        self._places = [_Place(variables) for variables in self._environments[:trajectories]]
        return []

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
                if message["kind"] in LAST:
                    place.job, place.worker = None, worker if worker.sound else None
                yield job, message if worker.heard else self._never_began(place, message)
            place.failures = 0 if worker.heard else place.failures

    def _never_began(self, place: _Place, lost: Message) -> Message:
        """The message for a worker that died while loading its libraries: its cell begins again."""
        place.failures += 1
        if place.failures <= RETRIES:
            return {"kind": "again"}
        self._places.remove(place)
        if not self._places:
            raise HoldfastError(
                f"workers die before they are ready ({lost['how']}); the last one said: "
                f"{lost['words'] or 'nothing'}; see what holdfast doctor says"
            )
        return {
            "kind": "again",
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
