"""One cell in a worker: what its parent is told, and what it may rely on."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
import torch

from holdfast import HoldfastError, Trajectory
from holdfast.core.files import lock_directory
from holdfast.studies.job import Job
from holdfast.studies.study import write_table
from holdfast.studies.workers import child


@pytest.mark.parametrize(
    ("fault", "error", "sound"),
    [
        (HoldfastError("here: wrong; do this"), "here: wrong; do this", True),
        (MemoryError(), "MemoryError", False),
        (torch.OutOfMemoryError("no\nroom"), "OutOfMemoryError: no room", False),
    ],
)
def test_only_the_callers_mistakes_leave_a_worker_sound(
    fault, error, sound, cell, tmp_path, monkeypatch
):
    """After any other, memory may be in pieces: the next cell is for a fresh process."""

    def fail(*_) -> None:
        raise fault

    monkeypatch.setattr(Trajectory, "advance", fail)
    order, told = Job(cell(), tmp_path).order(), []
    outcome = child.attempt(order, lambda what, **values: told.append((what, values)))
    assert outcome == {"horizon": 0, "error": error, "sound": sound}
    assert told == [("opened", {"horizon": 0})]


def test_relative_paths_begin_where_the_study_was_asked_for(cell, tmp_path, monkeypatch):
    """A node's own processes may begin anywhere."""
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir()
    elsewhere.mkdir()
    facts = ({"question": f"Q{n}?", "answer": "abc"} for n in range(4))
    (home / "facts.jsonl").write_text("".join(json.dumps(fact) + "\n" for fact in facts))
    monkeypatch.chdir(home)
    order = Job(cell(stream={"name": "facts.jsonl"}, horizon=1), Path("store")).order()
    monkeypatch.chdir(elsewhere)
    told = []
    outcome = child.attempt(order, lambda what, **_: told.append(what))
    assert outcome == {"horizon": 1, "error": None, "sound": True}
    assert (home / "store" / "matrix.csv").exists() and not any(elsewhere.iterdir())


def test_a_store_that_was_moved_is_not_made_again(cell, tmp_path):
    store = tmp_path / "study" / "cells"
    outcome = child.attempt(Job(cell(horizon=1), store / "cell").order(), lambda *_, **__: None)
    assert outcome["error"] and "moved or removed meanwhile" in outcome["error"]
    assert outcome["sound"] and not any(tmp_path.iterdir())
    with pytest.raises(HoldfastError, match="moved or removed meanwhile"):
        write_table(store.parent, "cells", [{"a": 1}])
    assert not any(tmp_path.iterdir())


def test_a_cell_that_another_study_learns_is_waited_for(cell, tmp_path, monkeypatch):
    monkeypatch.setattr(child, "_PATIENCE", 0.0)
    told = []

    def tell(what, **values) -> None:
        told.append(what)
        if what == "event":
            assert "another process" in values["text"]
            other.close()  # it is done

    other = contextlib.ExitStack()
    other.enter_context(lock_directory(tmp_path))
    outcome = child.attempt(Job(cell(horizon=1), tmp_path).order(), tell)
    assert outcome == {"horizon": 1, "error": None, "sound": True}
    assert told == ["opened", "event", "task"]
