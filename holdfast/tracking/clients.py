"""The trackers' own clients, each as a function that logs numbers at a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.core.errors import HoldfastError, did_you_mean

PROJECT = "holdfast"


@dataclass(frozen=True)
class Run:
    """What a client is told of a run.

    directory: the trajectory's; identity: the same for the same run, so that a continued run
    continues in the tracker too; settings: nested; name: that the tracker shows; group: the name
    of its study, if it is of one.
    """

    directory: Path
    identity: str
    settings: Mapping[str, Any]
    name: str
    group: str | None = None


@dataclass(frozen=True)
class Client:
    """An open run in a tracker.

    log: sends numbers by name; the axis (``step`` or ``task``) is the first part of each name, and
    the second argument the place on it. close: waits until all is sent.
    """

    log: Callable[[Mapping[str, float], int], None]
    close: Callable[[], None]


def _tensorboard(run: Run) -> Client:
    from torch.utils.tensorboard.writer import SummaryWriter

    # Its page names a run by its folder, and shows those of a group by a part of that name.
    folders = [] if run.group is None else [_folder(run.group), _folder(run.name)]
    writer = SummaryWriter(str(run.directory.joinpath("tensorboard", *folders)))
    settings = "\n".join(f"    {line}" for line in _lines(run.settings))
    writer.add_text("settings", settings)

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
    known = client.search_runs([experiment.experiment_id], tag, max_results=1)
    if known:
        number = known[0].info.run_id
        client.update_run(number, status="RUNNING")
    else:
        tags = {"holdfast_run": run.identity}
        if run.group is not None:
            tags["holdfast_study"] = run.group
        opened = client.create_run(experiment.experiment_id, tags=tags, run_name=run.name)
        number = opened.info.run_id
        for line in _lines(run.settings):
            key, _, value = line.partition(": ")
            client.log_param(number, key, value)

    def log(numbers: Mapping[str, float], place: int) -> None:
        mlflow.log_metrics(dict(numbers), step=place, run_id=number)

    return Client(log, lambda: client.set_terminated(number))


def _trackio(run: Run) -> Client:
    import trackio

    name = f"{run.name}-{run.identity[:8]}"  # a run is known by its name
    opened = trackio.init(
        project=PROJECT,
        name=name,
        group=run.group,
        resume="allow",
        config=dict(run.settings),
        embed=False,
    )

    return Client(lambda numbers, place: opened.log(dict(numbers), step=place), opened.finish)


_CLIENTS = {"tensorboard": _tensorboard, "wandb": _wandb, "mlflow": _mlflow, "trackio": _trackio}


def check_tracker(name: str) -> None:
    """Raise HoldfastError unless a tracker is known and its client is installed."""
    from importlib.util import find_spec

    if name not in _CLIENTS:
        raise HoldfastError(f'--track "{name}": no such tracker; {did_you_mean(name, _CLIENTS)}')
    if find_spec(name) is None:
        package = "mlflow-skinny" if name == "mlflow" else name
        raise HoldfastError(f"--track {name}: {package} is not installed; pip install {package}")


def open_client(name: str, run: Run) -> Client:
    """Open a run in the tracker of that name; what its client raises comes through."""
    return _CLIENTS[name](run)


def _folder(name: str) -> str:
    return name.replace("/", "_").strip(".") or "_"


def _lines(values: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Nested settings as ``optim.lr: 0.001``."""
    lines = []
    for key, value in values.items():
        if isinstance(value, Mapping):
            lines += _lines(value, f"{prefix}{key}.")
        else:
            lines.append(f"{prefix}{key}: {value}")
    return lines
