"""A study's trajectories in a tracker, one run each, grouped by the study; and a memory."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast import RunConfig
from holdfast.results import final
from holdfast.results.commit import read_matrix
from holdfast.studies.cell import Cell, sent_to
from holdfast.studies.executor import Job
from holdfast.studies.worker import attempt
from holdfast.tracking import tracking
from tests.studies.forking import forking
from tests.tracking.readers import wandb_records

# By the run's name: its group, and the recall of all after each task.
Runs = dict[str, tuple[str | None, dict[int, float]]]
RECALL = "task/recall_of_all"


def of_tensorboard(place: Path) -> Runs:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found: Runs = {}
    for folder in place.glob("*/cells/*/tensorboard/*/*"):
        files = EventAccumulator(str(folder)).Reload()
        points = {event.step: event.value for event in files.Scalars(RECALL)}
        found[folder.name] = folder.parent.name, points
    return found


def of_wandb(place: Path) -> Runs:
    found: Runs = {}
    for path in sorted(place.glob("*/cells/*/wandb/offline-run-*/*.wandb")):
        name, group, points = "", "", {}
        for record in wandb_records(path):
            if record.WhichOneof("record_type") == "run":
                name, group = record.run.display_name, record.run.run_group
            items = {
                item.key or "/".join(item.nested_key): json.loads(item.value_json)
                for item in record.history.item
            }
            if RECALL in items:
                points[items["task"]] = items[RECALL]
        earlier = found.get(name, (group, {}))[1]
        found[name] = group, earlier | points
    return found


def of_mlflow(place: Path) -> Runs:
    import mlflow

    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name("holdfast")
    found: Runs = {}
    for run in client.search_runs([experiment.experiment_id]):
        history = client.get_metric_history(run.info.run_id, RECALL)
        assert run.info.run_name not in found  # continued, not begun again
        points = {one.step: one.value for one in history}
        found[run.info.run_name] = run.data.tags.get("holdfast_study"), points
    return found


def of_trackio(place: Path) -> Runs:
    found: Runs = {}
    with sqlite3.connect(place / "trackio" / "holdfast.db") as database:
        configs = dict(database.execute("select run_name, config from configs").fetchall())
        for name, step, metrics in database.execute("select run_name, step, metrics from metrics"):
            group = json.loads(configs[name])["_Group"]
            points = found.setdefault(name.rpartition("-")[0], (group, {}))[1]
            if RECALL in json.loads(metrics):
                points[step] = json.loads(metrics)[RECALL]
    return found


READERS: dict[str, Callable[[Path], Runs]] = {
    "tensorboard": of_tensorboard,
    "wandb": of_wandb,
    "mlflow": of_mlflow,
    "trackio": of_trackio,
}


@pytest.fixture
def values(backbone_directory: Path) -> dict:
    return {
        "method": "merge",
        "backbone": {"name": str(backbone_directory)},
        "stream": {"tasks": 4, "items_per_task": 4},
        "lora": {"rank": 2, "alpha": 8},
        "optim": {"epochs": 1, "batch_size": 2, "lr": 0.03},
        "evaluation": {"max_new_tokens": 24},
    }


def cells(values: dict, horizon: int) -> list[Cell]:
    return [
        Cell(
            f"merge optim.lr={rate}", RunConfig.of(values, [f"optim.lr={rate}", "seed=3"]), horizon
        )
        for rate in (0.01, 0.03)
    ]


def learn(cell: Cell, store: Path) -> list[str]:
    """Advance a cell as a worker does, from the message that it is sent; return what it tells."""
    store.mkdir(parents=True, exist_ok=True)
    told: list[str] = []

    def tell(what: str, **more: str) -> None:
        told.extend([more["text"]] if what == "event" else [])

    order = json.loads(json.dumps(Job(cell, cell.directory(store)).order()))
    outcome = attempt(order, tell)
    assert outcome == {"horizon": cell.horizon, "error": None, "sound": True}
    return told


@pytest.mark.filterwarnings("ignore")  # the clients' own
@pytest.mark.parametrize("name", READERS)
def test_each_trajectory_is_one_run_of_the_study(name: str, values, offline: Path) -> None:
    """Learned in two steps, as in a search, by workers that learn one cell after another."""
    study, store = offline / "rates", offline / "rates" / "cells"
    for horizon in (1, 2):
        for cell in sent_to(name, study, cells(values, horizon)):
            assert learn(cell, store) == []
    found = READERS[name](offline)
    assert set(found) == {f"merge optim.lr={rate} seed 3" for rate in (0.01, 0.03)}
    for cell in cells(values, 2):
        group, points = found[f"{cell.candidate} seed 3"]
        matrix = read_matrix(cell.directory(store))
        assert group == "rates"
        assert points == pytest.approx({task: final(matrix.up_to(task)) for task in (1, 2)})


def test_without_a_tracker_nothing_is_sent(values, offline: Path) -> None:
    (cell, _) = cells(values, 1)
    assert sent_to(None, offline / "rates", [cell]) == [cell]
    learn(cell, offline / "cells")
    assert not [*offline.glob("cells/*/tensorboard"), *offline.glob("cells/*/wandb")]
    with_tracker = replace(cell, horizon=2, tracker="x", group="y")
    assert with_tracker.key == cell.key  # the same trajectory


def test_a_tracker_that_fails_is_told_and_the_cell_goes_on(
    values, offline: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ConnectionError("no route")

    monkeypatch.setattr(tracking, "open_client", fail)
    (cell, _) = sent_to("wandb", offline / "rates", cells(values, 2))
    told = learn(cell, offline / "cells")
    assert told == ["--track wandb: no route; the run goes on without it"]


@pytest.mark.filterwarnings("ignore")
def test_workers_of_a_suite_send_their_cells(
    holdfast, offline: Path, values, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the command, whose workers are other processes, in tensorboard's files."""
    forking(monkeypatch)
    settings = [f"backbone.name={values['backbone']['name']}", "stream.tasks=2", "lora.rank=2"]
    settings += ["stream.items_per_task=4", "optim.epochs=1", "evaluation.max_new_tokens=24"]
    command = ["suite", "factorial", "--methods", "vanilla,merge", "--seeds", "41", *settings]
    ended = holdfast(*command, "--out", offline / "pair", "--track", "tensorboard")
    assert ended.status == 0, ended.err
    found = of_tensorboard(offline)
    assert {name: group for name, (group, _) in found.items()} == {
        "vanilla seed 41": "pair",
        "merge seed 41": "pair",
    }
    assert all(set(points) == {1, 2} for _, points in found.values())
    refused = holdfast(*command, "--out", offline / "more", "--track", "tensorbord")
    assert refused.status == 2 and "did you mean tensorboard" in refused.err
    assert not (offline / "more").exists()
