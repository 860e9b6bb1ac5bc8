"""How fast this machine multiplies matrices and moves bytes: the floor under counted work."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from benchmarks.counting import Shape, Work
from benchmarks.record import Table, number

_SIZES = (256, 512, 768, 1024)


@dataclass(frozen=True)
class Rates:
    """flops: operations a second in a matrix product; bytes: a second, read or written."""

    flops: float
    bytes: float

    def seconds(self, works: Iterable[Work]) -> float:
        """The least time: each piece waits for its arithmetic or for its bytes, one after another.

        Launching, elementwise work and Python cost nothing here, so no program reaches it.
        """
        return sum(max(one.flops / self.flops, one.bytes / self.bytes) for one in works)


@functools.cache
def rates(working_set: int) -> Rates:
    """The best of several tries, with torch's present number of threads.

    working_set: bytes moved at once. The frozen matrices of a small model stay in the processor's
    cache, which is faster than memory; the bandwidth is that of a buffer of their size.
    """
    flops = 0.0
    for size in _SIZES:
        a, b, c = (torch.rand(size, size) for _ in range(3))
        flops = max(flops, 2 * size**3 / _best(functools.partial(torch.mm, a, b, out=c)))
    buffer = torch.rand(max(1024, working_set // 4))
    target = torch.empty_like(buffer)
    copied = 8 * buffer.numel() / _best(functools.partial(target.copy_, buffer))
    read = 4 * buffer.numel() / _best(buffer.sum)
    return Rates(flops, max(copied, read))


def rates_of(shape: Shape) -> Rates:
    """The rates at the size of a model's frozen matrices."""
    return rates(shape.weight_bytes)


def rates_table(shape: Shape) -> Table:
    """What the floors of a report were computed with."""
    found = rates_of(shape)
    row = [number(found.flops / 1e9), number(found.bytes / 1e9)]
    return Table("Peak rates of this machine", ["Gflop/s, float32", "GB/s in the weights"], [row])


def _best(work: Callable[[], object], tries: int = 12) -> float:
    """The shortest of a few runs: nothing but interference makes one longer."""
    work()
    best = float("inf")
    for _ in range(tries):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best
