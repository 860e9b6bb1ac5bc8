"""How fast a device multiplies matrices and moves bytes, measured or given."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from holdfast.prediction.shape import Work

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
def processor_rates(working_set: int) -> Rates:
    """Of float32 on the processor, the best of several tries, with torch's number of threads.

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


def rates_on(device: torch.device, dtype: torch.dtype, working_set: int) -> Rates:
    """Of a device: in ``dtype`` on a GPU, in float32 on the processor."""
    if device.type == "cuda":
        return _gpu_rates(device, dtype)
    return processor_rates(working_set)


def _gpu_rates(device: torch.device, dtype: torch.dtype) -> Rates:
    """Of a GPU, the best of several tries: a large matrix product, and a copy of a large buffer."""
    size, buffered = 8192, 2**30
    a, b = (torch.rand(size, size, device=device, dtype=dtype) for _ in range(2))
    product = torch.empty_like(a)
    buffer = torch.zeros(buffered, dtype=torch.uint8, device=device)
    target = torch.empty_like(buffer)

    def multiply() -> None:
        torch.mm(a, b, out=product)
        torch.cuda.synchronize(device)

    def copy() -> None:
        target.copy_(buffer)
        torch.cuda.synchronize(device)

    return Rates(2 * size**3 / _best(multiply), 2 * buffered / _best(copy))


def _best(work: Callable[[], object], tries: int = 12) -> float:
    """The shortest of a few runs: nothing but interference makes one longer."""
    work()
    best = float("inf")
    for _ in range(tries):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best
