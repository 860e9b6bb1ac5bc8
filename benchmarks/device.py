"""Clocks, rates and memory of the device that a measurement runs on.

A GPU works while Python goes on: a clock has to wait for it, or to be read by the device itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from holdfast.learning.progress import Progress


def synchronise(device: torch.device) -> None:
    """Wait until the device has done what it was told."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def timed(device: torch.device, work: Callable[[], object]) -> float:
    """Seconds of one call, from an idle device to an idle device."""
    synchronise(device)
    begin = time.perf_counter()
    work()
    synchronise(device)
    return time.perf_counter() - begin


def peak_bytes(device: torch.device) -> int:
    """The most that tensors took since the last :func:`forget_peak`; 0 where nobody counts."""
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0


def forget_peak(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


class PhaseWatch:
    """The engine's stopwatch, on an idle device at both ends of a phase.

    seconds, peaks: time and highest memory of every phase.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.seconds: dict[str, float] = {}
        self.peaks: dict[str, int] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        forget_peak(self._device)
        synchronise(self._device)
        begin = time.perf_counter()
        yield
        synchronise(self._device)
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - begin
        self.peaks[name] = max(self.peaks.get(name, 0), peak_bytes(self._device))


class StepMarks(Progress):
    """Marks the end of every optimiser step on the device's own clock, without waiting for it."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._marks: list[torch.cuda.Event | float] = []

    def step(self, phase: str, task: int, done: int, total: int) -> None:
        if self._device.type != "cuda":
            self._marks.append(time.perf_counter())
            return
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self._marks.append(event)

    def milliseconds(self) -> list[float]:
        """Of every step but the first."""
        synchronise(self._device)
        pairs = zip(self._marks, self._marks[1:], strict=False)
        return [
            1000 * (end - begin) if isinstance(begin, float) else begin.elapsed_time(end)
            for begin, end in pairs
        ]


def description(device: torch.device) -> str:
    """The device's name, and for a GPU its memory and the CUDA that torch was built for."""
    if device.type != "cuda":
        return "CPU"
    properties = torch.cuda.get_device_properties(device)
    memory = properties.total_memory / 1e9
    return f"{properties.name}, {memory:.0f} GB, CUDA {torch.version.cuda}"
