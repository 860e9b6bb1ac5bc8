"""Advance cells in parallel by worker processes on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from holdfast.core.errors import HoldfastError
from holdfast.core.own import require_directory
from holdfast.studies.cell import Cell, Outcome
from holdfast.studies.executor import Watch, check_counts
from holdfast.studies.job import Job
from holdfast.studies.workers.shift import Shift, Slot


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
        if devices is not None and not devices:
            raise HoldfastError("devices is empty; name a GPU, or leave it out")
        places: list[str | None] = [None] * (workers or 1)
        if devices is not None:
            places = _places(devices, workers_per_gpu, workers)
        share = threads or (1 if devices is None else max(1, _usable_cores() // len(places)))
        self._environments = [environment(share, device) for device in places]
        self._retries = retries

    def map(self, cells: Sequence[Cell], store: Path, watch: Watch) -> Iterator[Outcome]:
        """Yield the outcome of each cell as it finishes; cells start in the order given.

        Cells of one trajectory run one after another. Raises HoldfastError when no worker can be
        started. See :class:`~holdfast.studies.executor.Executor`.
        """
        require_directory(store.parent)
        store.mkdir(exist_ok=True)
        jobs = [Job(cell, cell.directory(store)) for cell in cells]
        slots = [Slot(one) for one in self._environments]
        return Shift(jobs, slots, self._retries, watch).outcomes()


def _places(devices: Sequence[str], each: int, workers: int | None) -> list[str | None]:
    """The GPU of every worker; fewer workers than fit are spread over all GPUs."""
    room: list[str | None] = [*devices] * each
    if workers is not None and workers > len(room):
        raise HoldfastError(
            f"{workers} workers on {len(devices)} GPUs of {each} each; give at most "
            f"{len(room)}, or more workers a GPU"
        )
    return room[:workers]


def usable_gpus() -> list[str]:
    """The GPUs that this process may use, as ``CUDA_VISIBLE_DEVICES`` names them."""
    import torch

    count = torch.cuda.device_count()
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return [str(index) for index in range(count)]
    return [name.strip() for name in named.split(",")][:count]


def _usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def environment(threads: int, device: str | None) -> dict[str, str]:
    """The environment variables that a worker needs before it imports torch."""
    # OpenMP and MKL each fall back to the other's variable, so set both.
    known = {name: str(threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    known["TOKENIZERS_PARALLELISM"] = "false"
    return known if device is None else {**known, "CUDA_VISIBLE_DEVICES": device}
