"""The rows that a trajectory observes, and what follows from them."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest

from holdfast import RunConfig, Trajectory, read_study
from holdfast.evaluation.recall import Recall, RecallCount
from holdfast.learning import trajectory as trajectory_module
from holdfast.results import RecallMatrix, RunRecord, summarise
from tests.trajectory.outcome import numbers_of, result_of


@pytest.fixture(scope="module")
def easy(values, tmp_path_factory) -> RunConfig:
    """Three tasks that the tiny model partly learns and partly forgets."""
    stream = tmp_path_factory.mktemp("easy") / "easy.jsonl"
    lines = [
        {
            "task": str(task),
            "question": f"{'abc'[task]}{item}",
            "answer": "xy"[(task + item) // 3 % 2],
        }
        for task in range(3)
        for item in range(4)
    ]
    stream.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return RunConfig.of(
        values(
            "vanilla",
            seed=42,
            stream={"name": str(stream), "tasks": 3, "items_per_task": None},
            lora={"rank": 4, "dropout": 0.05},
            optim={"epochs": 16},
            evaluation={"max_new_tokens": 24},
        )
    )


@pytest.fixture(scope="module")
def learned(easy, tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("learned") / "run"
    Trajectory(easy, place).advance()
    return place


def test_rows_are_what_the_model_of_that_boundary_recalls(easy, tmp_path):
    """Each boundary's model, loaded again, is asked again; on all tasks so far and the next."""
    for task in range(1, 4):
        Trajectory(easy, tmp_path).advance(task)
        again = Trajectory(easy, tmp_path)
        learner = again.learner()
        recall = Recall(learner.backbone, learner.template, easy.evaluation)
        for on_task, count in enumerate(recall.row(again.stream.tasks[:task]), start=1):
            assert again.matrix.entry(task, on_task) == count.entry
        if task < 3:
            unseen = recall.task(again.stream.tasks[task])
            later = Trajectory(easy, tmp_path).advance(task + 1)
            assert later.entry(task, task + 1) == unseen.entry
    record = Trajectory(easy, tmp_path).record()
    assert record.losses().groupby("task").size().tolist() == [16, 16, 16]
    tasks = record.tasks()
    phases = tasks.filter(like="seconds_").sum(axis="columns")
    assert tasks["seconds"].tolist() == pytest.approx(phases.tolist()) and (phases > 0).all()
    matrix = Trajectory(easy, tmp_path).matrix
    correct = {recall.correct for _, _, recall in matrix.entries()}
    assert len(correct) > 2, "a test in which nothing is ever recalled would prove nothing"


class Scripted:
    """Counts that tell which model was asked about which task."""

    def __init__(self, backbone, template, config, *, exact_case) -> None:
        self.asked = []

    def task(self, task) -> RecallCount:
        self.asked.append(task.name)
        return RecallCount(correct=int(task.name), items=8, boxed=8, decoded=0)

    def row(self, tasks) -> list[RecallCount]:
        self.asked.append([task.name for task in tasks])
        last = len(tasks)
        # After the i-th task the j-th has i - j + 1 right; its box opens in 8 - (i - j).
        return [
            RecallCount(last - int(task.name) + 1, 8, 8 - (last - int(task.name)), 0)
            for task in tasks
        ]


@pytest.fixture
def scripted(monkeypatch) -> list[Scripted]:
    made = []

    def make(*arguments, **options) -> Scripted:
        made.append(Scripted(*arguments, **options))
        return made[-1]

    monkeypatch.setattr(trajectory_module, "Recall", make)
    return made


def test_every_row(scripted, config, tmp_path):
    matrix = Trajectory(config("vanilla"), tmp_path).advance(3)
    expected = {
        (0, 1): 1,
        (1, 1): 1,
        (1, 2): 2,
        (2, 1): 2,
        (2, 2): 1,
        (2, 3): 3,
        (3, 1): 3,
        (3, 2): 2,
        (3, 3): 1,
    }
    assert {(i, j): recall.correct for i, j, recall in matrix.entries()} == expected
    assert scripted[0].asked == ["1", ["1"], "2", ["1", "2"], "3", ["1", "2", "3"]]
    # The next task is asked about when it arrives, not before.
    assert math.isnan(matrix[3, 4])
    assert Trajectory(config("vanilla"), tmp_path).advance(4)[3, 4] == 4 / 8


def test_only_the_horizons_row(scripted, config, tmp_path):
    settings = config("vanilla", evaluation={"rows": "horizon"})
    matrix = Trajectory(settings, tmp_path).advance(3)
    assert {(i, j): recall.correct for i, j, recall in matrix.entries()} == {
        (3, 1): 3,
        (3, 2): 2,
        (3, 3): 1,
    }
    assert scripted[0].asked == [["1", "2", "3"]]
    assert Trajectory(settings, tmp_path).advance(4).observed_rows == (3, 4)
    assert [recall.asked for recall in scripted[1:]] == [[["1", "2", "3", "4"]]]


def test_box_emission(scripted, config, tmp_path):
    """Of each task when it was just learned, and of all tasks after the last."""
    trajectory = Trajectory(config("vanilla"), tmp_path)
    trajectory.advance(2)
    trajectory = Trajectory(config("vanilla"), tmp_path)
    trajectory.advance(3)
    emission = json.loads((tmp_path / "metrics.json").read_text())["box_emission"]
    assert emission == {"diagonal": 1.0, "final": (8 + 7 + 6) / 24}
    assert trajectory.metrics()["box_emission"] == emission


def test_looking_only_at_the_end_changes_no_model(config, undisturbed, tmp_path):
    method = "si_online_ewc_sd_replay_merge"
    settings = config(method, evaluation={"rows": "horizon"})
    last = Trajectory(settings, tmp_path).advance(4)
    every = Trajectory(config(method), undisturbed(method, 4)).matrix
    assert [last.entry(4, task) for task in range(1, 5)] == [
        every.entry(4, task) for task in range(1, 5)
    ]
    ours, theirs = result_of(tmp_path), result_of(undisturbed(method, 4))
    state = [name for name in ours if name.endswith(".safetensors")]
    assert len(state) >= 3
    assert all(ours[name] == theirs[name] for name in state)


def test_files_tell_what_the_trajectory_tells(easy, learned):
    trajectory, record = Trajectory(easy, learned), RunRecord.open(learned)
    matrix = trajectory.matrix
    assert record.matrix == matrix
    assert record.metrics == trajectory.metrics()
    assert record.metrics == summarise(matrix)
    assert record.metrics["final"] == sum(matrix[3, task] for task in (1, 2, 3)) / 3
    assert record.horizon == trajectory.horizon == 3
    assert record.description.config == easy.model_dump(mode="json")
    assert record.description.stream["tasks"] == 3


def test_before_the_first_task(config, tmp_path):
    trajectory = Trajectory(config("vanilla"), tmp_path / "new")
    assert trajectory.horizon == 0
    assert trajectory.matrix == RecallMatrix()
    assert trajectory.metrics()["final"] is None
    assert not (tmp_path / "new").exists()


def test_derived_files_are_made_again(config, undisturbed, tmp_path):
    """They follow from the commit, so neither scribbles nor their absence matter."""
    place = shutil.copytree(undisturbed("vanilla", 2), tmp_path / "run")
    (place / "matrix.csv").write_text("scribbles")
    (place / "metrics.json").unlink()
    Trajectory(config("vanilla"), place).advance(2)
    assert numbers_of(place) == numbers_of(undisturbed("vanilla", 2))


def test_the_log_has_one_line_a_task(config, undisturbed, tmp_path):
    place = shutil.copytree(undisturbed("si_replay_merge", 3), tmp_path / "run")
    events = list(RunRecord.open(place).events())
    assert [(event["event"], event["task"]) for event in events] == [
        ("task", 1),
        ("task", 2),
        ("task", 3),
    ]
    commit = json.loads((place / "state" / "commit.json").read_text())
    assert commit["log_bytes"] == (place / "log.jsonl").stat().st_size
    last = events[-1]
    assert last["state_bytes"] == sum(size for size, _ in commit["files"].values())
    assert last["losses"][-1].keys() == {"sft", "si", "replay"}
    assert last["replay_samples"] == 3
    assert {"training", "evaluation", "sampling", "teacher", "boundary"} <= last["seconds"].keys()
    assert all(event["peak_memory_bytes"] > 0 for event in events)
    assert events[0]["replay_samples"] == 0

    # What a killed process logged of a task that it did not commit is forgotten.
    log = place / "log.jsonl"
    whole = log.read_bytes()
    log.write_bytes(whole + b'{"event": "task", "task": 4, "lo')
    Trajectory(config("si_replay_merge"), place).advance(4)
    assert log.read_bytes().startswith(whole)
    assert [event["task"] for event in RunRecord.open(place).events()] == [1, 2, 3, 4]

    # A log that somebody removed comes to no harm.
    log.unlink()
    Trajectory(config("si_replay_merge", stream={"tasks": 5}), place).advance(5)
    assert [event["task"] for event in RunRecord.open(place).events()] == [5]


def test_rows_at_a_distance(config, tmp_path):
    """Every second boundary and the horizon ask about all; each task is asked in its own turn."""
    whole = Trajectory(config("vanilla"), tmp_path / "every").advance(4)
    settings = config("vanilla", stream={"tasks": 5}, evaluation={"rows": 2})
    trajectory = Trajectory(settings, tmp_path / "some")
    matrix = trajectory.advance(5)
    seen = {(i, j) for i, j, _ in matrix.entries() if j <= i}
    whole_rows = {(i, j) for i in (2, 4, 5) for j in range(1, i + 1)}
    assert seen == {(1, 1), (3, 3)} | whole_rows
    for i, j, recall in matrix.entries():
        if i <= 4 and j <= 4:
            assert recall == whole.entry(i, j)
    metrics = json.loads((tmp_path / "some" / "metrics.json").read_text())
    assert None not in (metrics["final"], metrics["diag"], metrics["forget"])
    assert None not in metrics["retention_by_age"]


def test_a_matrix_that_was_cut_is_read_from_the_commit(learned, tmp_path):
    place = shutil.copytree(learned, tmp_path / "run")
    lines = (place / "matrix.csv").read_text().splitlines(keepends=True)
    (place / "matrix.csv").write_text("".join(lines[:3]))
    matrix = RunRecord.open(learned).matrix
    assert RunRecord.open(place).matrix == matrix
    study = read_study(place)
    assert study.matrices[str(place)] == matrix
    assert study.missing == ()


@pytest.mark.parametrize("size", [17, 0.5])
def test_a_log_that_was_cut_is_continued_by_whole_lines(size, config, undisturbed, tmp_path):
    place = Path(shutil.copytree(undisturbed("vanilla", 3), tmp_path / "run"))
    log = (place / "log.jsonl").read_bytes()
    beginning = log[: size if isinstance(size, int) else int(size * len(log))]
    (place / "log.jsonl").write_bytes(beginning)
    Trajectory(config("vanilla"), place).advance(4)
    tasks = [event["task"] for event in RunRecord.open(place).events()]
    assert tasks == [*range(1, 1 + beginning.count(b"\n")), 4]
    assert result_of(place) == result_of(undisturbed("vanilla", 4))
