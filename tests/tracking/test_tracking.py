"""A run in each tracker, by its own client, without a network."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch

from holdfast import RunConfig, Trajectory
from holdfast.core.errors import HoldfastError
from holdfast.learning.progress import OptimiserStep, Progress, Several
from holdfast.results import final, retention_by_age
from holdfast.results.record import read_events
from holdfast.studies.executor import Cell, Job, with_tracker
from holdfast.studies.worker import attempt
from holdfast.tracking import tracking
from holdfast.tracking.tracking import Client, Run, check_tracker, tracked
from tests.studies.forking import forking
from tests.tracking.readers import READERS


@pytest.fixture
def config(backbone_directory) -> RunConfig:
    return RunConfig.of(
        {
            "method": "si_sd_replay_merge",
            "seed": 3,
            "backbone": {"name": str(backbone_directory)},
            "stream": {"tasks": 9, "items_per_task": 8},
            "lora": {"rank": 2, "alpha": 8},
            "optim": {"epochs": 3, "batch_size": 2, "lr": 0.03, "warmup": 0.5},
            "sampling": {"samples": 4, "max_new_tokens": 6},
            "evaluation": {"max_new_tokens": 24},
        }
    )


class Heard(Progress):
    """What a listener of one's own hears, and the numbers of every step."""

    def __init__(self) -> None:
        self.names, self.steps = [], []

    def task_begun(self, task, horizon):
        self.names.append(f"begun {task} of {horizon}")

    def optimised(self, step):
        (terms,) = step.terms
        assert set(terms) == {"sft", "si", "sd", "replay"}
        norm, loss = float(step.gradient_norm), float(terms["sft"])
        assert norm > 0 and 0 < step.rate <= 0.03
        self.steps.append({"rate": step.rate, "gradient_norm": norm, "loss/sft": loss})

    def row_observed(self, after_task, recall):
        self.names.append(f"row {after_task} on {list(recall)}")

    def committed(self, event):
        self.names.append(f"committed {event['task']}")

    def event(self, text):
        self.names.append(text)


def advanced(config: RunConfig, place: Path, to: int, listener: Progress | None) -> Trajectory:
    trajectory = Trajectory(config, place)
    trajectory.advance(to, listener)
    return trajectory


def written(place: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(place.rglob("*.safetensors"))}


@pytest.mark.usefixtures("quick")
def test_a_listener_hears_everything_in_order_and_changes_nothing(config, tmp_path: Path) -> None:
    heard = Heard()
    listened = advanced(config, tmp_path / "a", 2, Several(Progress(), heard))
    assert heard.names == [
        *("begun 1 of 2", "row 1 on [1]", "committed 1"),
        *("begun 2 of 2", "row 2 on [1, 2]", "committed 2"),
    ]
    assert len(heard.steps) == 2 * 3 * 4
    silent = advanced(config, tmp_path / "b", 2, None)
    assert silent.matrix == listened.matrix
    assert written(tmp_path / "a") == written(tmp_path / "b") != {}


@pytest.mark.usefixtures("quick")
@pytest.mark.filterwarnings("ignore")  # the clients' own
@pytest.mark.parametrize("name", READERS)
def test_the_tracker_has_what_the_run_told(name: str, config, offline: Path) -> None:
    """Three tasks of a study's run, the third told anew; and a run of no study."""
    heard = Heard()
    place, other = offline / "cells" / "a", offline / "cells" / "b"
    for done, horizon in ((0, 2), (2, 3)):
        names = {"name": "merge seed 3", "group": "rates"}
        with tracked(name, config, place, done, heard, **names) as progress:
            trajectory = advanced(config, place, horizon, progress)
    alone = RunConfig.of(config.model_dump(mode="json"), ["optim.epochs=1", "stream.tasks=1"])
    with tracked(name, alone, other, 0, Progress()) as progress:
        advanced(alone, other, 1, progress)
    assert not any("--track" in line for line in heard.names)
    runs = READERS[name](offline)
    assert {run: group for run, (group, _) in runs.items()} == {"merge seed 3": "rates", "b": None}
    assert set(runs["b"].points["task/recall_of_all"]) == {1}
    points = runs["merge seed 3"].points
    ends = [10, 12, 22, 24, 34, 36]
    assert sorted(points["step/rate"]) == ends
    for begin, end in pairwise([0, *ends]):
        part = heard.steps[begin:end]
        for key in ("rate", "gradient_norm", "loss/sft"):
            mean = fmean(step[key] for step in part)
            assert points[f"step/{key}"][end] == pytest.approx(mean, rel=1e-5)
    assert set(points["task/recall/on_task_1"]) == {1, 2, 3}
    matrix = trajectory.matrix
    for task in (1, 2, 3):
        upto = matrix.up_to(task)
        assert points["task/recall_of_all"][task] == pytest.approx(final(upto))
        for age, share in enumerate(retention_by_age(upto)):
            assert points[f"task/retention/age_{age}"][task] == pytest.approx(share)
        assert points[f"task/recall/on_task_{task}"][3] == pytest.approx(matrix[3, task])
    for event in read_events(place):
        for name, value in (
            ("seconds/training", event["seconds"]["training"]),
            ("loss/sd", event["losses"][-1]["sd"]),
        ):
            assert points[f"task/{name}"][event["task"]] == pytest.approx(value, rel=1e-5)
    assert all(math.isfinite(value) for series in points.values() for value in series.values())
    assert {"step/loss/sft", "step/gradient_norm", "task/state_bytes"} <= set(points)


def test_a_continued_run_is_the_same_one_and_counts_what_is_committed(
    config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From any folder; the log may hold a task whose commit did not come any more."""
    runs: list[Run] = []
    sent: list[tuple[int, dict[str, float]]] = []

    def opened(run: Run) -> Client:
        runs.append(run)
        return Client(lambda numbers, place: sent.append((place, dict(numbers))), lambda: None)

    monkeypatch.setitem(tracking.CLIENTS, "wandb", opened)
    monkeypatch.chdir(tmp_path)
    Path("run").mkdir()
    lines = [{"event": "task", "task": task, "steps": 12} for task in (1, 2)]
    Path("run/log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for place in (Path("run"), tmp_path / "run"):
        with tracked("wandb", config, place, 1, Progress()) as progress:
            progress.task_begun(2, 2)
            progress.optimised(OptimiserStep(2, 1, [{"sft": torch.ones(())}], 0.1, torch.ones(())))
            progress.row_observed(2, {1: math.nan, 2: 0.5})
    assert runs[0].identity == runs[1].identity and runs[0].name == runs[1].name == "run"
    row = (2, {"task/recall/on_task_2": 0.5})  # without what is not known
    step = (13, {"step/rate": 0.1, "step/gradient_norm": 1.0, "step/loss/sft": 1.0})
    assert sent == 2 * [row, step]


@pytest.mark.filterwarnings("ignore")
def test_steps_of_a_task_that_was_killed_are_drawn_once(tmp_path: Path) -> None:
    for steps, last in ((0, 9), (5, 7)):
        run = Run(tmp_path / "cells" / "run", "x", {}, "run", steps=steps)
        client = tracking.CLIENTS["tensorboard"](run)
        for step in range(steps + 1, last + 1):
            client.log({"step/rate": 1.0}, step)
        if not steps:
            client.log({"task/recall_of_all": 1.0}, 1)
        client.close()
    points = READERS["tensorboard"](tmp_path)["run"].points
    assert list(points["step/rate"]) == list(range(1, 8))
    assert list(points["task/recall_of_all"]) == [1]


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("fails", ["open", "log", "close"])
def test_a_tracker_that_fails_never_stops_a_cell(fails, config, tmp_path, monkeypatch):
    """A worker tells it once, and the cell's directory is what it would be without a tracker."""

    def act(name: str) -> None:
        if name == fails:
            raise ConnectionError("no route\nto host")

    def opened(run: Run) -> Client:
        assert (run.name, run.group) == ("merge seed 3", "rates")
        act("open")
        return Client(lambda *_: act("log"), lambda: act("close"))

    monkeypatch.setitem(tracking.CLIENTS, "wandb", opened)
    plain = Cell("merge", config, 1)
    (tracked_cell,) = with_tracker("wandb", tmp_path / "rates", [plain])
    assert tracked_cell.key == plain.key and with_tracker(None, tmp_path, [plain]) == [plain]
    lines: list[str] = []

    def tell(kind: str, **more: Any) -> None:
        lines.extend([more["text"]] if kind == "event" else [])

    order = json.loads(json.dumps(Job(tracked_cell, tracked_cell.directory(tmp_path)).order()))
    assert attempt(order, tell) == (None, True)
    assert lines == ["--track wandb: no route to host; the run goes on without it"]


@pytest.mark.filterwarnings("ignore")
def test_workers_of_a_suite_send_their_cells(holdfast, offline, backbone_directory, monkeypatch):
    """By the command, whose workers are other processes, in tensorboard's files."""
    forking(monkeypatch)
    settings = [f"backbone.name={backbone_directory}", "stream.tasks=2", "lora.rank=2"]
    settings += ["stream.items_per_task=4", "optim.epochs=1", "evaluation.max_new_tokens=24"]
    command = ["suite", "factorial", "--methods", "vanilla,merge", "--seeds", "41", *settings]
    ended = holdfast(*command, "--out", offline / "pair", "--track", "tensorboard")
    assert ended.status == 0, ended.err
    runs = READERS["tensorboard"](offline / "pair")
    groups = {name: group for name, (group, _) in runs.items()}
    assert groups == {"vanilla seed 41": "pair", "merge seed 41": "pair"}
    assert all(set(points["task/recall_of_all"]) == {1, 2} for _, points in runs.values())
    refused = holdfast(*command, "--out", offline / "more", "--track", "tensorbord")
    assert refused.status == 2 and "did you mean tensorboard" in refused.err
    assert not (offline / "more").exists()


def test_an_unknown_tracker_and_one_that_is_not_there_are_refused(monkeypatch):
    with pytest.raises(HoldfastError, match='"wandbb": no such tracker; did you mean wandb'):
        check_tracker("wandbb")
    monkeypatch.setattr(tracking, "find_spec", lambda _: None)
    with pytest.raises(HoldfastError, match="mlflow-skinny is not installed; pip install"):
        check_tracker("mlflow")
