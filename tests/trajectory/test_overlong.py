"""Items that are longer than a sequence may be: dropped or truncated, counted, and continued."""

from __future__ import annotations

import json

import pytest

from holdfast import Trajectory
from holdfast.analysis import read_items
from holdfast.core.errors import HoldfastError
from holdfast.learning.progress import Progress
from holdfast.learning.stream import stream_of

SHORT, LONG = "abc", "abc" * 30


class WorkReport(Progress):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def event(self, text: str) -> None:
        self.lines.append(text)


@pytest.fixture
def overlong(config, tmp_path):
    """Two tasks of two items, of which one is too long."""
    facts = tmp_path / "facts.jsonl"
    rows = [
        {
            "task": task,
            "question": f"{task}{item}",
            "answer": LONG if (task, item) == (1, 1) else SHORT,
        }
        for task in range(2)
        for item in range(2)
    ]
    facts.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def of(method: str, **template):
        stream = {"name": str(facts), "tasks": None, "items_per_task": None}
        return config(method, stream=stream, template={"max_length": 60, **template})

    return of


@pytest.mark.parametrize(
    ("overlong_is", "items", "message"),
    [
        ("drop", [2, 1], "left out 1 of 4 items: longer than 60 tokens (template.overlong: drop)"),
        ("truncate", [2, 2], "truncated 1 of 4 items: longer than 60 tokens"),
    ],
)
def test_a_run_goes_on_without_them_or_with_their_beginning(
    overlong, tmp_path, overlong_is, items, message
) -> None:
    settings, progress = overlong("si_replay_merge", overlong=overlong_is), WorkReport()
    Trajectory(settings, tmp_path / "run").advance(1)
    matrix = Trajectory(settings, tmp_path / "run").advance(2, progress)
    assert [matrix.entry(2, task).items for task in (1, 2)] == items
    assert progress.lines[0].startswith(message)
    # What studies and plans read is the same stream.
    stream = stream_of(settings)
    assert [len(task.items) for task in stream.tasks] == items
    assert Trajectory(settings, tmp_path / "run").stream.fingerprint == stream.fingerprint


def test_what_becomes_of_them_is_part_of_the_identity(overlong, tmp_path) -> None:
    Trajectory(overlong("vanilla", overlong="truncate"), tmp_path / "run").advance(1)
    with pytest.raises(HoldfastError, match='overlong: "truncate" -> "drop"'):
        Trajectory(overlong("vanilla", overlong="drop"), tmp_path / "run")


def test_they_are_refused_unless_one_says_otherwise(overlong, tmp_path) -> None:
    with pytest.raises(HoldfastError, match=r'task "1" item 2: .* or see template.overlong'):
        Trajectory(overlong("vanilla"), tmp_path / "run").advance(1)


def test_items_of_a_run_that_left_some_out_are_refused_with_the_reason(overlong, config, tmp_path):
    settings = overlong("vanilla", overlong="drop")
    settings = settings.model_copy(
        update={"evaluation": settings.evaluation.model_copy(update={"items": True})}
    )
    Trajectory(settings, tmp_path / "run").advance(2)
    with pytest.raises(HoldfastError, match=r"does not have the tasks.*drop left some items out"):
        read_items(tmp_path / "run")
