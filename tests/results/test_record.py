"""Reading a trajectory's directory."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.config import FORMAT, sha256_of
from holdfast.core.errors import HoldfastError
from holdfast.core.files import write_json
from holdfast.results import Description, RunRecord, summarise
from holdfast.results.record import (
    _OF_A_TASK,
    commit_file,
    read_commit,
    task_seconds,
    write_commit,
)
from tests.refused import line_of

from .matrices import dense

MATRIX = dense([[1.0], [0.25, 0.75]])
DESCRIPTION: dict[str, Any] = {
    "format": FORMAT,
    "config": {"method": "vanilla", "seed": 41},
    "identity": sha256_of({"method": "vanilla"}),
    "numbers": {"method": "vanilla"},
    "stream": {"name": "symbol_qa", "tasks": 2, "fingerprint": "s"},
    "backbone": {"name": "embedded", "fingerprint": "b"},
    "versions": {},
}


@pytest.fixture
def trajectory(tmp_path: Path) -> Path:
    """A finished trajectory of two tasks."""
    write_json(tmp_path / "config.json", DESCRIPTION)
    MATRIX.save(tmp_path / "matrix.csv")
    write_json(tmp_path / "metrics.json", summarise(MATRIX))
    (tmp_path / "log.jsonl").write_text('{"event": "task", "task": 1}\n{"event": "task"}\n')
    return tmp_path


def test_a_finished_trajectory_reads_back_whole(trajectory: Path) -> None:
    record = RunRecord.open(str(trajectory))
    assert record.path == trajectory
    assert asdict(record.description) | {"format": FORMAT} == DESCRIPTION
    assert (record.matrix, record.metrics, record.horizon) == (MATRIX, summarise(MATRIX), 2)
    assert list(record.events()) == [{"event": "task", "task": 1}, {"event": "task"}]


def test_a_trajectory_before_its_first_boundary_is_empty_and_not_an_error(tmp_path: Path) -> None:
    write_json(tmp_path / "config.json", DESCRIPTION)
    record = RunRecord.open(tmp_path)
    assert (record.horizon, record.metrics, list(record.events())) == (0, None, [])
    assert list(record.losses().columns) == ["task", "epoch"]
    assert list(record.tasks().columns) == [*_OF_A_TASK, "seconds"]


@pytest.mark.parametrize("name", ["", "absent"])
def test_a_directory_that_is_no_trajectory_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(HoldfastError, match=r"not a trajectory \(no config.json\)"):
        RunRecord.open(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("config.json", "{"),
        ("config.json", "[]"),
        ("config.json", "{}"),
        ("config.json", json.dumps({**DESCRIPTION, "numbers": 3})),
        ("config.json", json.dumps({**DESCRIPTION, "stream": {"name": "symbol_qa"}})),
        ("config.json", json.dumps({**DESCRIPTION, "format": None})),
        ("metrics.json", "3"),
        ("matrix.csv", "after_task\n"),
    ],
)
def test_a_damaged_file_is_named(trajectory: Path, name: str, text: str) -> None:
    (trajectory / name).write_text(text)
    assert str(trajectory / name) in line_of(RunRecord.open, trajectory)


@pytest.mark.parametrize("torn", ['{"event": "ta', '{"event": "task"}'])
def test_a_last_event_still_being_written_is_skipped(trajectory: Path, torn: str) -> None:
    with (trajectory / "log.jsonl").open("a") as log:
        log.write(torn)
    assert len(list(RunRecord.open(trajectory).events())) == 2


@pytest.mark.parametrize(("line", "message"), [("{", "not JSON"), ("[1]", "a JSON object")])
def test_a_damaged_event_is_named(trajectory: Path, line: str, message: str) -> None:
    with (trajectory / "log.jsonl").open("a") as log:
        log.write(line + "\n" + json.dumps({"event": "later"}) + "\n")
    with pytest.raises(HoldfastError, match=f"log.jsonl line 3: .*{message}"):
        list(RunRecord.open(trajectory).events())


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"config": {"method": "vanilla", "seed": 41, "lora": {"alpha": 6.4}}}, "lora.alpha: 64"),
        ({"numbers": {"method": "vanilla", "lora": {"alpha": 6.4}}}, "lora.alpha: 6.4"),
        ({"identity": "0" * 64}, "not those of its identity"),
    ],
)
def test_settings_edited_after_the_run_are_refused(
    tmp_path: Path, values: dict[str, Any], message: str
) -> None:
    numbers = {"method": "vanilla", "lora": {"alpha": 64}}
    honest = DESCRIPTION | {"config": numbers | {"seed": 41}, "numbers": numbers}
    honest["identity"] = sha256_of(numbers)
    write_json(tmp_path / "config.json", honest)
    assert Description.read(tmp_path).config["seed"] == 41
    write_json(tmp_path / "config.json", honest | values)
    with pytest.raises(HoldfastError, match=f"edited after the trajectory began .*{message}"):
        Description.read(tmp_path)


def test_what_auto_meant_is_no_edit(tmp_path: Path) -> None:
    numbers = {"evaluation": {"match": "exact"}}
    recorded = {"config": {"evaluation": {"match": "auto"}}, "numbers": numbers}
    write_json(tmp_path / "config.json", DESCRIPTION | recorded | {"identity": sha256_of(numbers)})
    assert Description.read(tmp_path).numbers == numbers


TASK = {"event": "task", "steps": 3, "replay_samples": 4, "state_bytes": 5, "peak_memory_bytes": 6}


def test_the_log_as_frames(trajectory: Path) -> None:
    first = TASK | {"task": 1, "losses": [{"sft": 2.0}, {"sft": 1.0}], "seconds": {"training": 2}}
    second = TASK | {
        "task": 2,
        "losses": [{"sft": 1.5, "replay": 0.5}],
        "seconds": {"training": 1.0, "sampling": 0.25},
    }
    events = [first, {"event": "other"}, second]
    (trajectory / "log.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    record = RunRecord.open(trajectory)
    losses = record.losses()
    rows = losses[["task", "epoch", "sft"]].to_numpy().tolist()
    assert rows == [[1, 1, 2.0], [1, 2, 1.0], [2, 1, 1.5]]
    assert losses["replay"].isna().tolist() == [True, True, False]
    tasks = record.tasks()
    assert tasks["seconds"].tolist() == [2, 1.25]
    assert tasks["seconds_sampling"].tolist()[1] == 0.25
    assert tasks[list(_OF_A_TASK)].to_numpy().tolist() == [[1, 3, 4, 5, 6], [2, 3, 4, 5, 6]]


@pytest.mark.parametrize("seconds", [{"training": None}, {"training": "3"}, {"training": [1]}])
def test_seconds_that_are_no_number_are_refused(trajectory: Path, seconds: dict[str, Any]) -> None:
    event = TASK | {"task": 1, "losses": [], "seconds": seconds}
    (trajectory / "log.jsonl").write_text(json.dumps(event) + "\n")
    assert "line 1: is no event of a task" in line_of(task_seconds, trajectory, 1)


def test_a_task_that_tells_nothing_is_no_row(trajectory: Path) -> None:
    record = RunRecord.open(trajectory)
    for read in (record.losses, record.tasks, partial(task_seconds, trajectory, 3)):
        assert "log.jsonl line 1: is no event of a task; restore" in line_of(read)


def test_a_commit_without_its_digest_is_none(tmp_path: Path) -> None:
    """Nothing says then that it is as it was written."""
    write_commit(tmp_path, {"completed": 2})
    assert read_commit(tmp_path) == {"completed": 2}
    write_json(commit_file(tmp_path), {"completed": 2})
    with pytest.raises(HoldfastError, match="is no commit as it was written"):
        read_commit(tmp_path)
