"""Predicted seconds of a task by phase, and of a stream: measured passes times their number."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from holdfast.prediction.space import PredictedMemory
from holdfast.prediction.workload import Rehearsal, Workload

Clock = Callable[[], float]

_MOMENT = 1.0  # seconds; a part of a pass that takes as long is scaled up to the whole pass


@dataclass(frozen=True)
class Seconds:
    """Predicted seconds of a run, if every sample has full length and no answer is decoded.

    step: of a minibatch; verifying: of an evaluation pass; sampling: of one sequence.
    """

    work: Workload
    step: float
    verifying: float
    sampling: float

    @classmethod
    def measured(
        cls, memory: PredictedMemory, device: torch.device, clock: Clock = time.perf_counter
    ) -> Seconds:
        """Measure on a device of this machine, with random weights: their values do not matter."""
        work, timed = memory.work, partial(_timed, device, clock)
        model = Rehearsal(work, memory.precision).place(device)
        grid = work.verified
        a_token = timed(model.sampling, memory.rows) / max(1, memory.rows)
        return cls(
            work,
            step=timed(lambda rows: partial(model.step, rows), work.rows),
            verifying=timed(
                lambda rows: partial(model.forward, grid._replace(rows=rows)), grid.rows
            ),
            sampling=a_token * memory.sample,
        )

    def of_task(self, task: int) -> dict[str, float]:
        """The seconds of each phase of the task with this number, from 1; the first has no past."""
        work, past = self.work, task > 1
        current, replayed, general = (rows * length for rows, length in work.minibatch(work.rows))
        whole, in_task = current + replayed + general, current + replayed * past + general
        a_token = self.verifying / (work.verified.rows * work.verified.length)
        phases = {
            "sampling": self.sampling * (work.writes if past else work.first_writes),
            "teacher": a_token * (work.asks if past else work.general.rows * work.general.length),
            "training": work.minibatches(task) * self.step * in_task / whole,
            # Forward, backward and outer products: together as long as four forward passes.
            "curvature": 4 * a_token * work.curvature_tokens(task),
            "evaluation": self._asking(task + (work.config.evaluation.rows != "horizon")),
        }
        return {phase: seconds for phase, seconds in phases.items() if seconds}

    def whole(self) -> float:
        """The seconds of the whole stream, with all rows of its matrix."""
        tasks, unseen = self.work.tasks, self.work.config.evaluation.rows != "horizon"
        by_task = [self.of_task(task) for task in range(1, tasks + 1)]
        learning = sum(sum(phases.values()) - phases["evaluation"] for phases in by_task)
        return learning + self._asking(self.work.asked + tasks * unseen)

    def _asking(self, tasks: int) -> float:
        return tasks * self.work.items / self.work.verified.rows * self.verifying


def _timed(
    device: torch.device, clock: Clock, make: Callable[[int], Callable[[], None]], whole: int
) -> float:
    """Seconds of a pass over ``whole`` rows. make: prepares a pass over a number of rows.

    Measures a growing part until it takes ``_MOMENT``, and scales it up.
    """
    rows, spent = min(1, whole), 0.0
    while rows:
        work, tries = make(rows), list[float]()
        while len(tries) < 2 and sum(tries) < 2 * _MOMENT:  # the first call is slower
            begin = clock()
            work()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            tries.append(clock() - begin)
        spent = min(tries) * whole / rows
        rows = min(whole, 4 * rows) if rows < whole and min(tries) < _MOMENT else 0
    return spent
