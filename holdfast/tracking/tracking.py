"""Sends a run to an experiment tracker by the tracker's own client; its errors stop no run."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

from holdfast.core.config import sha256_of
from holdfast.core.errors import HoldfastError, did_you_mean, reason_of
from holdfast.learning.config import RunConfig
from holdfast.learning.progress import OptimiserStep, Progress, Several
from holdfast.results import RecallMatrix, final, retention_by_age
from holdfast.results.record import flat, read_events

T = TypeVar("T")
EVERY = 10  # optimiser steps whose mean is one point
PROJECT = "holdfast"


@dataclass(frozen=True)
class Run:
    """A run, as a tracker's client has to know it.

    directory: the trajectory's; identity: of a continued run the same; settings: nested; name: as
    shown; group: the name of its study; steps: optimiser steps of tasks that are learned already.
    """

    directory: Path
    identity: str
    settings: Mapping[str, Any]
    name: str
    group: str | None = None
    steps: int = 0


@dataclass(frozen=True)
class Client:
    """An open run in a tracker.

    log: sends numbers by name, and the place on their axis, which is the first part of each name,
    ``step`` or ``task``; close: waits until all is sent.
    """

    log: Callable[[Mapping[str, float], int], None]
    close: Callable[[], None]


def _tensorboard(run: Run) -> Client:
    from torch.utils.tensorboard.writer import SummaryWriter

    # TensorBoard names a run by its folder, so a filter by the study's name shows its runs.
    parts = [] if run.group is None else [run.group, run.name]
    folders = [part.replace("/", "_").strip(".") or "_" for part in parts]
    # Purge what a killed process logged of its unfinished task, which is learned again.
    place = str(run.directory.joinpath("tensorboard", *folders))
    writer = SummaryWriter(place, purge_step=run.steps + 1)
    lines = [f"    {name}: {value}" for name, value in flat(run.settings).items()]
    writer.add_text("settings", "\n".join(lines))

    def log(numbers: Mapping[str, float], place: int) -> None:
        for name, value in numbers.items():
            writer.add_scalar(name, value, place)

    return Client(log, writer.close)


def _wandb(run: Run) -> Client:
    import wandb

    opened = wandb.init(
        project=PROJECT,
        name=run.name,
        group=run.group,
        id=run.identity,
        resume="allow",
        dir=str(run.directory),
        config=dict(run.settings),
    )
    for axis in ("step", "task"):
        opened.define_metric(axis)
        opened.define_metric(f"{axis}/*", step_metric=axis)

    def log(numbers: Mapping[str, float], place: int) -> None:
        axis = next(iter(numbers)).partition("/")[0]
        opened.log({**numbers, axis: place})

    return Client(log, opened.finish)


def _mlflow(run: Run) -> Client:
    import mlflow

    experiment = mlflow.set_experiment(PROJECT)
    client = mlflow.MlflowClient()
    tag = f"tags.holdfast_run = '{run.identity}'"
    runs = client.search_runs([experiment.experiment_id], tag, max_results=1)
    if runs:
        number = runs[0].info.run_id
        client.update_run(number, status="RUNNING")
    else:
        grouped = {} if run.group is None else {"holdfast_study": run.group}
        tags = {"holdfast_run": run.identity, **grouped}
        opened = client.create_run(experiment.experiment_id, tags=tags, run_name=run.name)
        number = opened.info.run_id
        for key, value in flat(run.settings).items():
            client.log_param(number, key, value)

    def log(numbers: Mapping[str, float], place: int) -> None:
        mlflow.log_metrics(dict(numbers), step=place, run_id=number)

    return Client(log, lambda: client.set_terminated(number))


def _trackio(run: Run) -> Client:
    import trackio

    name = f"{run.name}-{run.identity[:8]}"  # trackio knows a run by its name
    with redirect_stdout(sys.stderr):  # trackio prints to standard output
        opened = trackio.init(
            project=PROJECT,
            name=name,
            group=run.group,
            resume="allow",
            config=dict(run.settings),
            embed=False,
        )

    def close() -> None:
        with redirect_stdout(sys.stderr):
            opened.finish()  # type: ignore[no-untyped-call]

    return Client(lambda numbers, place: opened.log(dict(numbers), step=place), close)


CLIENTS = {"tensorboard": _tensorboard, "wandb": _wandb, "mlflow": _mlflow, "trackio": _trackio}


def check_tracker(name: str) -> None:
    """Raise HoldfastError unless a tracker is known and its client is installed."""
    if name not in CLIENTS:
        raise HoldfastError(f'--track "{name}": no such tracker; {did_you_mean(name, CLIENTS)}')
    if find_spec(name) is None:
        package = "mlflow-skinny" if name == "mlflow" else name
        raise HoldfastError(f"--track {name}: {package} is not installed; pip install {package}")


@contextmanager
def tracked(
    tracker: str | None,
    config: RunConfig,
    directory: Path,
    horizon: int,
    progress: Progress,
    *,
    name: str | None = None,
    group: str | None = None,
) -> Iterator[Progress]:
    """Yield the listener of a trajectory: ``progress``, and the tracker if one is named.

    horizon: tasks that are learned already; name: for the tracker, None for the directory's;
    group: the study's name. An error of the client is reported as an event to ``progress``.
    """
    if tracker is None:
        yield progress
        return
    identity = sha256_of([config.numbers(), str(directory.absolute())])[:16]
    settings = config.model_dump(mode="json")
    events = (event for event in read_events(directory) if event.get("event") == "task")
    steps = sum(event.get("steps", 0) for event in events if event["task"] <= horizon)
    run = Run(directory, identity, settings, name or directory.resolve().name, group, steps)
    tracking = Tracking(tracker, run, progress.event)
    try:
        yield Several(progress, tracking)
    finally:
        tracking.close()


class Tracking(Progress):
    """Sends a run to a tracker.

    By optimiser step (the mean over each ten): ``step/loss/TERM``, ``step/rate``,
    ``step/gradient_norm``. By task: ``task/recall/on_task_J`` of every observed row,
    ``task/recall_of_all``, ``task/retention/age_A`` for ages 0, 1, 2, 4, 8 and so on,
    ``task/seconds/PHASE``, ``task/loss/TERM`` of the last epoch, ``task/state_bytes``,
    ``task/peak_memory_bytes`` and what else is measured after a task.

    tell: shows a line to the user. After the first error of its client it sends nothing more.
    """

    def __init__(self, name: str, run: Run, tell: Callable[[str], None]) -> None:
        self._name, self._run, self._tell = name, run, tell
        self._steps = run.steps
        self._client: Client | None = None
        self._given_up = False
        self._waiting: list[OptimiserStep] = []

    def task_begun(self, task: int, horizon: int) -> None:
        if self._client is None:  # the directory is locked by now
            self._client = self._safely(lambda: CLIENTS[self._name](self._run))

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
        if self._client is not None:
            self._safely(self._client.close)

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
        finite = {name: float(value) for name, value in numbers.items() if math.isfinite(value)}
        if client is not None and finite:
            self._safely(lambda: client.log(finite, place))

    def _safely(self, act: Callable[[], T]) -> T | None:
        if self._given_up:
            return None
        try:
            return act()
        except Exception as error:  # noqa: BLE001 a client may raise anything; the run goes on
            self._given_up = True
            words = reason_of(error) or type(error).__name__
            self._tell(f"--track {self._name}: {words}; the run goes on without it")
            return None
