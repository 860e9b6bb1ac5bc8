"""Callbacks that learning calls while it runs, a stopwatch by phase, and the peak of memory."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.results import RecallMatrix

if TYPE_CHECKING:  # the command line draws its bars before torch is loaded
    from torch import Tensor, device


@dataclass(frozen=True)
class OptimiserStep:
    """One optimiser step.

    task: from 1; number: of the step within the task, from 1; terms: the value of each term of the
    loss, unweighted, one mapping a minibatch; rate: the learning rate; gradient_norm: before
    clipping. Tensors are scalars on the device of the model: reading one may wait for it.
    """

    task: int
    number: int
    terms: Sequence[Mapping[str, Tensor]]
    rate: float
    gradient_norm: Tensor


class Progress:
    """Callbacks of learning, all of which do nothing here: override those that you need.

    The command line draws bars in a subclass, ``holdfast.tracking`` sends to trackers in another.
    An error in a callback ends the run; committed tasks are kept.
    """

    def task_begun(self, task: int, horizon: int) -> None:
        """Learning of task ``task`` of ``horizon`` begins."""

    def optimised(self, step: OptimiserStep) -> None:
        """One optimiser step was taken."""

    def row_observed(self, after_task: int, recall: Mapping[int, float]) -> None:
        """Row ``after_task`` of the matrix was measured; recall: the fraction recalled, by task."""

    def committed(self, event: Mapping[str, Any]) -> None:
        """A task is on disk; event: its line in log.jsonl, with losses and seconds by phase."""

    def step(self, phase: str, task: int, done: int, total: int) -> None:
        """``done`` of ``total`` units of a task's phase are done; the only phase is training."""

    def task_done(self, task: int, horizon: int, matrix: RecallMatrix) -> None:
        """Task ``task`` of ``horizon`` is learned and committed; matrix: recall so far."""

    def event(self, text: str) -> None:
        """A one-line message for the user."""


class Several(Progress):
    """Passes every callback to several listeners, in order."""

    def __init__(self, *listeners: Progress) -> None:
        self._listeners = listeners

    def task_begun(self, task: int, horizon: int) -> None:
        for listener in self._listeners:
            listener.task_begun(task, horizon)

    def optimised(self, step: OptimiserStep) -> None:
        for listener in self._listeners:
            listener.optimised(step)

    def row_observed(self, after_task: int, recall: Mapping[int, float]) -> None:
        for listener in self._listeners:
            listener.row_observed(after_task, recall)

    def committed(self, event: Mapping[str, Any]) -> None:
        for listener in self._listeners:
            listener.committed(event)

    def step(self, phase: str, task: int, done: int, total: int) -> None:
        for listener in self._listeners:
            listener.step(phase, task, done, total)

    def task_done(self, task: int, horizon: int, matrix: RecallMatrix) -> None:
        for listener in self._listeners:
            listener.task_done(task, horizon, matrix)

    def event(self, text: str) -> None:
        for listener in self._listeners:
            listener.event(text)


class Stopwatch:
    """Seconds spent, by phase."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time inside the block to a phase."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - begin
            self.seconds[name] = self.seconds.get(name, 0.0) + spent


def peak_memory(used: device) -> int:
    """Peak memory in bytes: of the GPU on CUDA, otherwise of the whole process."""
    if used.type == "cuda":
        import torch

        return int(torch.cuda.max_memory_allocated(used))
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
