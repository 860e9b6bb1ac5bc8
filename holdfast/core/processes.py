"""Several processes that share the work of one run; and child processes.

A launcher such as torchrun starts one command several times and gives each process its place by
RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. Within :func:`joined` these processes are one run:
each holds the whole model, and takes every ``world_size()``-th of the items (sequences, samples,
questions). Without a launcher this process is the only one, and no function calls torch.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.core.errors import HoldfastError, error_of, reason_of

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")

_PLACE = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
# Long, since a process that is gone is noticed by its closed connections, while a commit to a slow
# disk, or the longest answers of one process, must not look like that.
_PATIENCE = timedelta(hours=1)
_SECONDS_TO_MEET = 300
_SECONDS_FOR_THE_FIRST = 3.0  # head start of the first process to report an error that all have


@dataclass(frozen=True)
class _Group:
    """rank: of this process, from 0; count: of processes; store: key-value store that all share."""

    rank: int
    count: int
    store: Any


_group: _Group | None = None


def launched() -> int:
    """How many processes a launcher started with this one, itself included; 1 without one."""
    has_place = all(os.environ.get(name) for name in _PLACE)
    size = os.environ["WORLD_SIZE"] if has_place else "1"
    return int(size) if size.isdigit() else 1


@contextmanager
def joined() -> Iterator[None]:
    """Make one run, within the block, of the processes that a launcher started, if any.

    Every process must enter it and do the same. Raises HoldfastError if they do not connect.
    """
    global _group
    if launched() == 1:
        yield
        return
    assert _group is None, "joined already"
    _group = _meet()
    try:
        yield
        import torch.distributed as dist

        dist.destroy_process_group()
    finally:
        _group = None


def _meet() -> _Group:
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # we report lost connections ourselves
    import torch
    import torch.distributed as dist
    from torch.distributed.rendezvous import rendezvous

    place, size = os.environ["RANK"], os.environ["WORLD_SIZE"]
    if not place.isdigit() or int(place) >= int(size):  # else it would wait for others in vain
        raise HoldfastError(
            f"RANK = {place} is none of WORLD_SIZE = {size}; ranks count from 0 to {int(size) - 1}"
        )
    address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    try:
        meeting = rendezvous("env://", timeout=timedelta(seconds=_SECONDS_TO_MEET))
        store, rank, count = next(meeting)
        # torchrun keeps one store over its restarts, with the addresses of the former processes.
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        store = dist.PrefixStore(f"holdfast {attempt}", store)  # type: ignore[attr-defined]
        dist.init_process_group(
            backend, store=store, rank=rank, world_size=count, timeout=_PATIENCE
        )
    except (RuntimeError, ValueError) as error:
        raise HoldfastError(
            f"process {place} of {size} does not reach the others "
            f"by {address} ({_reason(error)}); start all of them, with one free address and port"
        ) from error
    return _Group(rank, count, store)


def world_size() -> int:
    """How many processes share the work."""
    return 1 if _group is None else _group.count


def is_rank_zero() -> bool:
    """Whether this process writes the files and speaks to the user."""
    return _group is None or _group.rank == 0


def rank() -> int:
    """The place of this process among all that share the work."""
    return 0 if _group is None else _group.rank


def local_rank() -> int | None:
    """The place of this process among those on its machine; None for a single process."""
    if _group is None:
        return None
    return int(os.environ.get("LOCAL_RANK", _group.rank))


def rank_indices(number: int) -> range:
    """The indices of this process's items, out of ``number`` items."""
    return range(number) if _group is None else range(_group.rank, number, _group.count)


def all_reduce_(tensor: Tensor) -> Tensor:
    """Replace a tensor by its sum over the processes, with the same bits in each; return it."""
    if _group is not None:
        import torch.distributed as dist

        with _connected():
            dist.all_reduce(tensor)
    return tensor


def all_reduce_count(number: int) -> int:
    """The sum of a whole number over the processes."""
    if _group is None:
        return number
    import torch

    return int(all_reduce_(torch.tensor(number)))


def broadcast_(tensor: Tensor, owner: int = 0) -> Tensor:
    """Replace a tensor by that of the process ``owner``; return it."""
    if _group is not None:
        import torch.distributed as dist

        with _connected():
            dist.broadcast(tensor, owner)
    return tensor


def all_gather_rows(rows: Tensor, counts: Sequence[int]) -> Tensor:
    """The rows of all processes' items, in the items' order: [sum of counts, ...], bit for bit.

    rows: of this process's items, one after another; counts: the number of rows of every item.
    """
    if _group is None:
        return rows
    import torch

    pieces: list[Tensor] = [rows] * len(counts)
    for owner in range(_group.count):
        owned = range(owner, len(counts), _group.count)
        sizes = [counts[item] for item in owned]
        is_ours = owner == _group.rank
        block = rows.contiguous() if is_ours else rows.new_empty(sum(sizes), *rows.shape[1:])
        if sum(sizes):
            broadcast_(block, owner)
        for item, piece in zip(owned, block.split(sizes), strict=True):
            pieces[item] = piece
    return torch.cat(pieces) if pieces else rows


def all_gather_lists(lists: list[list[int]], number: int) -> list[list[int]]:
    """All processes' lists, one for each of ``number`` items, in order; lists: this process's."""
    if _group is None:
        return lists
    import torch.distributed as dist

    parts: list[list[list[int]]] = [[]] * _group.count
    with _connected():
        dist.all_gather_object(parts, lists)
    rows: list[list[int]] = [[]] * number
    for rank, part in enumerate(parts):
        rows[rank :: _group.count] = part
    return rows


def run_on_rank_zero(work: Callable[[], T]) -> T:
    """Do ``work`` in the first process; return its result, a JSON value, in all processes.

    The others wait. If it raises a HoldfastError, all processes raise it.
    """
    if _group is None:
        return work()
    import torch.distributed as dist

    answer: dict[str, Any] = {}
    failure: HoldfastError | None = None
    if _group.rank == 0:
        try:
            answer["result"] = work()
        except HoldfastError as error:
            failure = error
            answer = {"error": str(error), "code": error.code}
    box = [json.dumps(answer)]
    with _connected():
        dist.broadcast_object_list(box)
    if failure is not None:
        raise failure
    answer = json.loads(box[0])
    if "error" in answer:
        raise error_of(answer["code"], answer["error"])
    result: T = answer["result"]
    return result


def claims_error_report() -> bool:
    """Whether this process is the one to report an error, which others may have too.

    That is the first process if it fails as well, or else the first one that asks.
    """
    if _group is None:
        return True
    key = "holdfast: an error was said"
    with contextlib.suppress(RuntimeError):  # the store is gone with the first process
        patience = time.monotonic() + _SECONDS_FOR_THE_FIRST
        while _group.rank and not _group.store.check([key]) and time.monotonic() < patience:
            time.sleep(0.05)
        return bool(_group.store.add(key, 1) == 1)
    return False


@contextmanager
def _connected() -> Iterator[None]:
    """Turn an error of a connection into a HoldfastError."""
    try:
        yield
    except RuntimeError as error:
        raise HoldfastError(
            f"another process of this run has ended or is out of reach ({_reason(error)}); the "
            "tasks that are committed are kept, and the same command continues"
        ) from error


def _reason(error: Exception) -> str:
    """The message of an error of torch, without the place in torch's source."""
    words = re.sub(r"^\[\S+\] ", "", reason_of(error))
    return words.partition(". This is")[0][:120]


def importable() -> str:
    """A PYTHONPATH that gives a child started with ``-P`` this process's import path, no more.

    Without ``-P`` and this path, the child would also import from its working directory.
    """
    return os.pathsep.join(entry or os.getcwd() for entry in sys.path)


def manner(code: int) -> str:
    """How a process ended, in words. code: its return code, negative for a signal."""
    if code >= 0:
        return f"exit status {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:  # real-time signals have no names
        name = f"signal {-code}"
    hint = ", as when memory runs out" if code == -signal.SIGKILL else ""
    return f"killed by {name}{hint}"
