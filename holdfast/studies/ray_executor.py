"""Advance cells in parallel on a Ray cluster, or by a local Ray on one machine.

Ray only schedules. The process that it starts on a node keeps a worker process, as the local
executor does, sends it a cell and forwards its messages.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from holdfast.core.errors import HoldfastError, reason_of
from holdfast.studies.executor import (
    LAST,
    Job,
    Message,
    Watch,
    check_workers,
    environment,
    store_mark,
    unseen,
)
from holdfast.studies.worker import LOOK, WorkerProcess

_CONNECT = 5.0  # seconds until an address counts as unreachable; Ray itself would take minutes
_LOST = {
    "WorkerCrashedError": "its process on the node died",
    "NodeDiedError": "its node died",
    "OutOfMemoryError": "the node ran out of memory",
}
_idle_workers: dict[tuple[tuple[str, str], ...], WorkerProcess] = {}  # filled in Ray's processes


class RayExecutor:
    """An executor whose workers run wherever a Ray cluster has free resources.

    address: ``host:port`` of a cluster's head, or ``auto``; None for the cluster in RAY_ADDRESS, or
    else a local Ray started by this process. All nodes must see the store under the same path and
    have holdfast installed. workers: the most cells at once, None for as many as the cluster has
    resources for; threads: of each worker, which reserves as many CPUs; workers_per_gpu: if the
    cluster has GPUs, each cell reserves 1 / workers_per_gpu of one.

    Raises HoldfastError when Ray is not installed, or no cluster answers at the address.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        workers: int | None = None,
        workers_per_gpu: int = 1,
        threads: int = 1,
    ) -> None:
        check_workers(workers)
        self._ray = _connected(address)
        self._workers = workers
        self._environment = environment(threads)
        gpus = self._ray.cluster_resources().get("GPU", 0)
        if workers_per_gpu > 1 and not gpus:
            raise HoldfastError(
                f"{workers_per_gpu} workers a GPU, and Ray's cluster has no GPU; give only workers"
            )
        self._task = self._ray.remote(
            num_cpus=threads,
            num_gpus=1 / workers_per_gpu if gpus else 0,
            num_returns="streaming",
            max_retries=0,
        )(learn)

    def begin(self, jobs: list[Job], store: Path, watch: Watch) -> list[Job]:
        self._mark = store_mark(store)
        self._running: dict[Any, Job] = {}  # Ray's generator of a worker's messages -> its job
        return []

    def start(self, due: list[Job]) -> list[Job]:
        if self._workers is not None:
            due = due[: self._workers - len(self._running)]
        for job in due:
            task = self._task.options(name=job.cell.key)
            self._running[task.remote(job.order(), self._environment, self._mark)] = job
        return due

    def messages(self) -> Iterator[tuple[Job, Message]]:
        ready, _ = self._ray.wait(list(self._running), timeout=LOOK, fetch_local=False)
        for generator in ready:
            job, message = self._running[generator], self._next(generator)
            if message["kind"] in LAST:
                del self._running[generator]
            yield job, message

    def _next(self, generator: Any) -> Message:
        try:
            message: Message = self._ray.get(next(generator))
        except self._ray.exceptions.RayTaskError as error:  # `learn` raised, or no holdfast
            cause = " ".join(str(error.cause).split())
            return {"kind": "finished", "error": cause}
        except (self._ray.exceptions.RayError, StopIteration) as error:  # its text is a page long
            name = type(error).__name__
            return {"kind": "lost", "how": _LOST.get(name, name), "words": ""}
        return message

    def end(self) -> None:
        for generator in self._running:
            self._ray.cancel(generator, force=True)


def learn(order: Mapping[str, Any], environment: Mapping[str, str], mark: str) -> Iterator[Message]:
    """Advance a cell by a worker process on this node; yield the worker's messages. Run by Ray."""
    error = unseen(order, mark)
    if error is not None:
        yield {"kind": "finished", "error": error}
        return
    # Ray may have assigned another GPU to this process than for the previous cell.
    devices = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    key = (*sorted(environment.items()), ("devices", devices))
    worker = _idle_workers.pop(key, None) or WorkerProcess(environment)
    worker.send(order)
    kind = ""
    while kind not in LAST:
        wait([worker.channel], LOOK)
        for message in worker.hear():
            kind = message["kind"]
            yield message
    if worker.sound:
        _idle_workers[key] = worker


def _connected(address: str | None) -> Any:
    """The ray module, connected to ``address`` unless the caller has already connected it."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise HoldfastError('Ray is not installed; pip install "holdfast[ray]"') from None
    if ray.is_initialized():
        return ray
    address = address or os.environ.get("RAY_ADDRESS")
    if address and address != "auto":
        _refuse_unreachable(address)
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        ray.init(address or "local", include_dashboard=None if address else False, **quiet)
    except (ConnectionError, RuntimeError, ValueError) as error:
        reason = reason_of(error)
        raise HoldfastError(f"Ray at {address or 'this machine'}: {reason}") from error
    return ray


def _refuse_unreachable(address: str) -> None:
    """Raise HoldfastError unless ``host:port`` accepts connections."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "://" in address:
        raise HoldfastError(
            f"Ray at {address}: write host:port of the cluster's head, such as 10.0.0.1:6379, or "
            "auto on a machine of the cluster"
        )
    try:
        socket.create_connection((host, int(port)), timeout=_CONNECT).close()
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise HoldfastError(
            f"Ray at {address}: nobody answers ({reason}); start one with ray start --head, or "
            "leave --ray-address out"
        ) from None
