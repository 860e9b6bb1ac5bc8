"""Advance cells in parallel on a Ray cluster, or by a local Ray on one machine.

Ray only schedules; the workers are those of the local executor: the process that Ray starts on a
node keeps a worker process, sends it a cell and forwards its messages.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.studies.cell import Cell, Outcome
from holdfast.studies.executor import Watch, check_counts
from holdfast.studies.job import Job, due
from holdfast.studies.local import environment
from holdfast.studies.shared_store import store_mark, unseen
from holdfast.studies.workers.process import WorkerProcess, manner

_LOOK = 1.0  # seconds between checks of workers that send nothing
_CONNECT = 5.0  # seconds until an address counts as unreachable; Ray itself would take minutes
_kept: dict[tuple[tuple[str, str], ...], WorkerProcess] = {}  # filled in Ray's processes


class RayExecutor:
    """An executor whose workers run wherever a Ray cluster has free resources.

    address: ``host:port`` of a cluster's head, or ``auto``; None for the cluster in RAY_ADDRESS, or
    else a local Ray started by this process. All nodes must see the store under the same path and
    have holdfast installed. workers: the most cells at once, None for as many as the cluster has
    resources for; threads: of each worker, which reserves as many CPUs; workers_per_gpu: if the
    cluster has GPUs, each cell reserves 1 / workers_per_gpu of one; retries: how often a cell is
    retried after its worker or node was lost.

    Raises HoldfastError when there would be no worker, Ray is not installed, or no cluster
    answers at the address.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        workers: int | None = None,
        workers_per_gpu: int = 1,
        threads: int = 1,
        retries: int = 2,
    ) -> None:
        check_counts(retries, workers=workers, workers_per_gpu=workers_per_gpu, threads=threads)
        self._ray = _connected(address)
        self._workers = workers
        self._retries = retries
        self._environment = environment(threads, device=None)
        gpus = self._ray.cluster_resources().get("GPU", 0)
        self._resources = {"num_cpus": threads, "num_gpus": 1 / workers_per_gpu if gpus else 0}
        self._task = self._ray.remote(learn)

    def map(self, cells: Sequence[Cell], store: Path, watch: Watch) -> Iterator[Outcome]:
        """Yield the outcome of each cell as it finishes; cells start in the order given.

        Cells of one trajectory run one after another.
        See :class:`~holdfast.studies.executor.Executor`.
        """
        store = store.absolute()
        mark = store_mark(store)
        waiting = [Job(cell, cell.directory(store)) for cell in cells]
        running: dict[Any, Job] = {}  # Ray's generator of a worker's messages -> its job
        try:
            while waiting or running:
                for job in due(waiting, running.values())[: self._room(len(running))]:
                    waiting.remove(job)
                    running[self._submit(job, mark)] = job
                ready, _ = self._ray.wait(list(running), timeout=_LOOK, fetch_local=False)
                for told in ready:
                    job = running[told]
                    outcome, ends = self._hear(told, job, watch)
                    if ends:
                        del running[told]
                        if outcome is None:
                            waiting.insert(0, job)
                    if outcome:
                        yield outcome
        finally:
            for told in running:
                self._ray.cancel(told, force=True)

    def _room(self, running: int) -> int | None:
        return None if self._workers is None else self._workers - running

    def _submit(self, job: Job, mark: str) -> Any:
        task = self._task.options(
            **self._resources, num_returns="streaming", max_retries=0, name=job.cell.key
        )
        return task.remote(job.order(), self._environment, str(job.directory.parent), mark)

    def _hear(self, told: Any, job: Job, watch: Watch) -> tuple[Outcome | None, bool]:
        """Process a worker's next message: the cell's outcome, if any, and whether it was last."""
        try:
            message = self._ray.get(next(told))
        except self._ray.exceptions.RayTaskError as error:  # `learn` raised, or no holdfast there
            cause = " ".join(str(error.cause).split())
            return job.hears({"told": "finished", "horizon": None, "error": cause}, watch), True
        except (self._ray.exceptions.RayError, StopIteration) as error:
            return job.lost(_in_words(error), "", self._retries, watch), True
        if message["told"] == "begins":
            job.starts(watch)
        elif message["told"] == "lost":
            return job.lost(message["how"], message["words"], self._retries, watch), True
        outcome = job.hears(message, watch)
        return outcome, outcome is not None


def learn(
    order: Mapping[str, Any], environment: Mapping[str, str], store: str, mark: str
) -> Iterator[dict[str, Any]]:
    """Advance a cell by a worker process on this node; yield the worker's messages. Run by Ray."""
    error = unseen(Path(store), mark)
    if error is not None:
        yield {"told": "finished", "horizon": None, "error": error}
        return
    yield {"told": "begins"}
    # Ray may have assigned another GPU to this process than for the previous cell.
    devices = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    key = (*sorted(environment.items()), ("devices", devices))
    worker = _kept.pop(key, None) or WorkerProcess(environment)
    worker.send(order)
    while True:
        wait([worker.fileno()], _LOOK)
        gone = worker.gone()
        for message in worker.hear():
            if message["told"] == "finished":
                if message["sound"]:
                    _kept[key] = worker
                yield message
                return
            if message["told"] != "ready":
                yield message
        if gone:
            code, words = worker.end(), worker.last_words()
            worker.close()
            yield {"told": "lost", "how": manner(code), "words": words}
            return


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
    if address:
        _refuse_unreachable(address)
    try:
        ray.init(address or "local", include_dashboard=None if address else False, **_QUIET)
    except (ConnectionError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise HoldfastError(f"Ray at {address or 'this machine'}: {reason}") from error
    return ray


_QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}


def _refuse_unreachable(address: str) -> None:
    """Raise HoldfastError unless ``host:port`` accepts connections; ``auto`` is not checked."""
    if address == "auto":
        return
    if "://" in address:
        raise HoldfastError(
            f"Ray at {address}: only host:port and auto are known; run the command on a machine "
            "of the cluster, such as by ray job submit"
        )
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise HoldfastError(f"Ray at {address}: write host:port, such as 10.0.0.1:6379, or auto")
    try:
        socket.create_connection((host, int(port)), timeout=_CONNECT).close()
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise HoldfastError(
            f"Ray at {address}: nobody answers ({reason}); start one with ray start --head, or "
            "leave --ray-address out"
        ) from None


def _in_words(error: Exception) -> str:
    """A short reason by the error's type; Ray's own messages are a page long."""
    kinds = {
        "WorkerCrashedError": "its process on the node died",
        "NodeDiedError": "its node died",
        "OutOfMemoryError": "the node ran out of memory",
    }
    return kinds.get(type(error).__name__, type(error).__name__)
