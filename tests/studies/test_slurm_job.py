"""What a job of Slurm tells the study."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import HoldfastError
from holdfast.studies import slurm_executor
from holdfast.studies.executor import Cell, Job, store_mark
from holdfast.studies.slurm_executor import AdvanceCell, Messages


@pytest.fixture
def job(cell, tmp_path) -> Callable[..., AdvanceCell]:
    """The work of a job, for this process to do."""

    def of(planned: Cell, mark: str | None = None) -> AdvanceCell:
        store = tmp_path / "store"
        mark = mark or store_mark(store)
        order = Job(planned, planned.directory(store)).order()
        return AdvanceCell(order, Messages(tmp_path / "told.jsonl"), mark, timeout_min=1)

    return of


def told_in(place: Path) -> list[tuple[str, object]]:
    lines = [json.loads(line) for line in (place / "told.jsonl").read_text().splitlines()]
    return [(line.pop("kind"), line) for line in lines]


def test_a_job_tells_what_a_worker_tells(cell, job, tmp_path):
    work = job(cell(horizon=1))
    work.order |= {"a field": "that this executor does not know"}
    work()
    assert told_in(tmp_path) == [
        ("begins", {}),
        ("opened", {"horizon": 0}),
        ("task", {"task": 1}),
        ("finished", {"error": None}),
    ]


def test_a_node_that_does_not_see_the_store_learns_nothing(cell, job, tmp_path):
    planned = cell()
    job(planned, mark="another")()
    ((kind, outcome),) = told_in(tmp_path)
    assert kind == "finished"
    assert outcome["error"].endswith("put the store where all nodes see it (--store)")
    assert not planned.directory(tmp_path / "store").exists()


def test_a_job_too_short_for_a_task_is_not_queued_again(cell, job, tmp_path, monkeypatch):
    """Its time limit would stop it in the same task again and again."""
    used = 0.0
    learned: list[int] = []
    monkeypatch.setattr(slurm_executor.time, "monotonic", lambda: used)

    def attempt(order, tell):
        nonlocal used
        used = 59.0
        for task in learned:
            tell("task", task=task)
        stopped.checkpoint()

    monkeypatch.setattr(slurm_executor, "attempt", attempt)
    stopped = job(cell())
    with pytest.raises(HoldfastError, match=r"^no task ends within 1 minutes, .*timeout_min"):
        stopped()
    used, learned = 0.0, [1]
    stopped.checkpoint()  # preempted at once, which says nothing of the time it needs
    with pytest.raises(TypeError):  # `None` is no outcome; but it was queued again
        stopped()
    assert told_in(tmp_path)[-1][0] == "event"
    stopped = stopped.checkpoint().function
    used, learned = 0.0, []  # the next job learns nothing more
    with pytest.raises(HoldfastError, match=r"^no task ends within 1 minutes, "):
        stopped()


def test_messages_that_a_killed_job_left_half_are_passed_over(tmp_path):
    path = tmp_path / "told.jsonl"
    messages = Messages(path)
    assert messages.new() == []
    messages.tell("task", task=1)
    with path.open("ab") as file:
        file.write(b'{"told": "submitted", "job": "4_0"}\n')  # as an older holdfast wrote
        file.write(b'{"kind": "task", "ta')
    assert messages.new() == [{"kind": "task", "task": 1}]
    messages.tell("begins")  # spoiled by what stands before it
    messages.tell("opened", horizon=1)
    assert messages.new() == [{"kind": "opened", "horizon": 1}]
    assert messages.new() == []
