"""One cell in a worker: what its parent is told, and what it may rely on."""

from __future__ import annotations

import contextlib
import json
import time
from multiprocessing.connection import Pipe
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace

import pytest
import torch

from holdfast import HoldfastError, Trajectory
from holdfast.core.files import lock_directory
from holdfast.core.plugins import plug_in_of
from holdfast.studies import worker
from holdfast.studies.directory import write_table
from holdfast.studies.executor import Job, due, store_mark
from holdfast.studies.worker import WorkerProcess, attempt
from tests.refused import line_of
from tests.studies.forking import forking


def silent(*_: object, **__: object) -> None:
    """Tells nobody."""


def test_a_trajectory_is_handed_to_one_worker_at_a_time() -> None:
    first, second, again, last = (Job(None, Path(name)) for name in "abac")
    assert due([first, second, again, last], []) == [first, second, last]
    assert due([again, last], [first]) == [last]
    assert due([again], [second]) == [again]


def test_a_worker_ends_with_its_parent(cell, tmp_path, monkeypatch):
    """Whose death closes the connection, while the worker is busy with a task that takes hours."""
    workers = forking(monkeypatch)
    endless = cell("endless", 1, optim={"epochs": 10**6, "batch_size": 2})
    process = WorkerProcess({})
    process.send(Job(endless, tmp_path / "cell").order())
    while not (tmp_path / "cell" / "config.json").exists():  # it begins to learn
        assert workers[0].poll() is None
        time.sleep(0.02)
    process.channel.close()
    assert workers[0].wait(30) == 0
    process.end()
    assert Trajectory(endless.config, tmp_path / "cell").horizon == 0


def test_a_worker_ends_though_its_last_words_were_not_read(monkeypatch):
    """Then its socket says reset, not that it has ended."""
    parent, own_end = Pipe()
    ended: list[int] = []
    monkeypatch.setattr(worker.os, "_exit", ended.append)
    own_end.send_bytes(b"begins")
    parent.close()
    with own_end:
        worker._listen(own_end, SimpleQueue())
    assert ended == [0]


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
    messages = []

    def tell(kind, **more):
        messages.append((kind, more))

    assert attempt(Job(cell(), tmp_path).order(), tell) == (error, sound)
    assert messages == [("begins", {}), ("opened", {"horizon": 0})]


def test_an_error_of_a_plug_in_is_said_to_be_one(cell, tmp_path, monkeypatch):
    namespace = {"__name__": "tethered.tether"}
    text = "def fail(*_):\n    raise KeyError('a wire')\n"
    exec(compile(text, "tether.py", "exec"), namespace)  # noqa: S102
    installed = [SimpleNamespace(name="tethered", module="tethered.tether")]
    monkeypatch.setattr("holdfast.core.plugins.installed", lambda group: installed)
    trajectory = Trajectory(cell().config, tmp_path)
    monkeypatch.setattr(Trajectory, "advance", namespace["fail"])
    monkeypatch.setattr("holdfast.learning.trajectory.Trajectory", lambda *_: trajectory)
    error, _ = attempt(Job(cell(), tmp_path).order(), silent)
    assert error == "the fault of the plug-in tethered (tether.py line 2): KeyError: 'a wire'"
    assert plug_in_of(KeyError("a wire of ours")) is None


def test_relative_paths_begin_where_the_study_was_asked_for(cell, tmp_path, monkeypatch):
    """A node's own processes may begin anywhere."""
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir()
    elsewhere.mkdir()
    (home / "facts.jsonl").write_text(json.dumps({"question": "Q?", "answer": "abc"}) + "\n")
    monkeypatch.chdir(home)
    order = Job(cell(stream={"name": "facts.jsonl"}, horizon=1), Path("store")).order()
    monkeypatch.chdir(elsewhere)
    assert attempt(order, silent) == (None, True)
    assert (home / "store" / "matrix.csv").exists() and not any(elsewhere.iterdir())


def test_a_store_that_was_moved_is_not_made_again(cell, tmp_path):
    store = tmp_path / "study" / "cells"
    order = Job(cell(horizon=1), store / "cell").order()
    error, sound = attempt(order, silent)
    assert error and "moved or removed meanwhile" in error
    assert "moved or removed meanwhile" in line_of(write_table, store.parent, "cells", [{"a": 1}])
    assert "moved or removed meanwhile" in line_of(store_mark, store)
    assert sound and not any(tmp_path.iterdir())


def test_a_cell_that_another_study_learns_is_waited_for(cell, tmp_path, monkeypatch):
    monkeypatch.setattr(worker, "_PATIENCE", 0.0)
    kinds = []

    def tell(kind, **values) -> None:
        kinds.append(kind)
        if kind == "event":
            assert "another process" in values["text"]
            other.close()  # it is done

    other = contextlib.ExitStack()
    other.enter_context(lock_directory(tmp_path))
    assert attempt(Job(cell(horizon=1), tmp_path).order(), tell) == (None, True)
    assert kinds == ["begins", "opened", "event", "task"]
