"""What a tracker is told of a run, and that it never stops one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import Any

from holdfast.core.config import sha256_of
from holdfast.learning.config import RunConfig
from holdfast.learning.progress import OptimiserStep, Progress, Several
from holdfast.results import RecallMatrix, final, retention_by_age
from holdfast.results.record import read_events
from holdfast.tracking.clients import Client, Run, open_client

EVERY = 10  # optimiser steps: their mean is one point


@contextmanager
def tracked(
    tracker: str | None,
    config: RunConfig,
    directory: Path,
    horizon: int,
    shown: Progress,
    *,
    name: str | None = None,
    group: str | None = None,
) -> Iterator[Progress]:
    """What listens to a trajectory in the block: ``shown``, and the tracker if one is named.

    horizon: tasks that are learned already; name: for the tracker, None for the directory's;
    group: the study's name. What the client raises is told to ``shown`` as an event.
    """
    if tracker is None:
        yield shown
        return
    identity = sha256_of([config.numbers(), str(directory.absolute())])[:16]
    settings = config.model_dump(mode="json")
    run = Run(directory, identity, settings, name or directory.resolve().name, group)
    events = (event for event in read_events(directory) if event.get("event") == "task")
    steps = sum(one.get("steps", 0) for one in events if one["task"] <= horizon)
    tracking = Tracking(tracker, run, shown.event, steps=steps)
    try:
        yield Several(shown, tracking)
    finally:
        tracking.close()


class Tracking(Progress):
    """Sends a run to a tracker.

    By optimiser step (the mean over each ten): ``step/loss/TERM``, ``step/rate``,
    ``step/gradient_norm``. By task: ``task/recall/on_task_J`` of every observed row,
    ``task/recall_of_all``, ``task/retention/age_A`` for ages 0, 1, 2, 4, 8 and so on,
    ``task/seconds/PHASE``, ``task/loss/TERM`` of the last epoch, ``task/state_bytes``,
    ``task/peak_memory_bytes`` and what else is measured after a task.

    steps: optimiser steps of the tasks before the first one that this process learns; tell: shows
    a line to the user. After the first error of its client it sends nothing more.
    """

    def __init__(self, name: str, run: Run, tell: Callable[[str], None], *, steps: int = 0) -> None:
        self._name = name
        self._run = run
        self._tell = tell
        self._steps = steps
        self._client: Client | None = None
        self._given_up = False
        self._waiting: list[OptimiserStep] = []

    def task_begun(self, task: int, horizon: int) -> None:
        if self._client is None and not self._given_up:  # only now the directory is the run's own
            self._safely(self._open)

    def optimised(self, step: OptimiserStep) -> None:
        self._steps += 1
        self._waiting.append(step)
        if len(self._waiting) == EVERY:
            self._send_steps()

    def row_observed(self, after_task: int, recall: Mapping[int, float]) -> None:
        row = {f"task/recall/on_task_{task}": share for task, share in recall.items()}
        self._send(row, after_task)

    def committed(self, event: Mapping[str, Any]) -> None:
        self._send_steps()
        numbers = {f"task/seconds/{name}": value for name, value in event["seconds"].items()}
        numbers |= {f"task/loss/{name}": value for name, value in event["losses"][-1].items()}
        numbers |= {
            f"task/{name}": value
            for name, value in event.items()
            if isinstance(value, int | float) and name != "task"
        }
        self._send(numbers, event["task"])

    def task_done(self, task: int, horizon: int, matrix: RecallMatrix) -> None:
        ages = [0, *(2**power for power in range(20))]
        retention = retention_by_age(matrix)
        numbers = {f"task/retention/age_{age}": retention[age] for age in ages if age < task}
        self._send({"task/recall_of_all": final(matrix), **numbers}, task)

    def close(self) -> None:
        """Send what waits, and wait until the client has sent it."""
        self._send_steps()
        if self._client is not None and not self._given_up:
            self._safely(self._client.close)

    def _open(self) -> None:
        self._client = open_client(self._name, self._run)

    def _send_steps(self) -> None:
        steps, self._waiting = self._waiting, []
        if not steps or self._given_up:
            return
        numbers = {
            "step/rate": fmean(step.rate for step in steps),
            "step/gradient_norm": fmean(float(step.gradient_norm) for step in steps),
        }
        parts = [terms for step in steps for terms in step.terms]
        for name in parts[0]:
            numbers[f"step/loss/{name}"] = fmean(float(terms[name]) for terms in parts)
        self._send(numbers, self._steps)

    def _send(self, numbers: Mapping[str, float], place: int) -> None:
        client = self._client
        known = {name: float(value) for name, value in numbers.items() if math.isfinite(value)}
        if client is not None and known and not self._given_up:
            self._safely(lambda: client.log(known, place))

    def _safely(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:  # noqa: BLE001 a client may raise anything; the run goes on
            self._given_up = True
            words = " ".join(str(error).split()) or type(error).__name__
            self._tell(f"--track {self._name}: {words}; the run goes on without it")
