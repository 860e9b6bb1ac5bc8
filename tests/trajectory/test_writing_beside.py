"""A task's files are written while the model is asked for its row, and never outlive the call."""

from __future__ import annotations

import threading
import time

import pytest

from holdfast import Trajectory
from holdfast.evaluation.recall import Recall
from holdfast.learning import state
from tests.trajectory.outcome import tasks_logged

pytestmark = pytest.mark.usefixtures("quick")


def test_neither_waits_for_the_other(config, tmp_path, monkeypatch):
    asked, begun, met = threading.Event(), threading.Event(), []
    ask, save_file = Recall.row, state.save_file

    def row(recall, tasks):
        asked.set()
        met.append(begun.wait(timeout=60))
        return ask(recall, tasks)

    def save(tensors, path):
        begun.set()
        met.append(asked.wait(timeout=60))
        save_file(tensors, path)

    monkeypatch.setattr(Recall, "row", row)
    monkeypatch.setattr(state, "save_file", save)
    Trajectory(config("si_replay_merge"), tmp_path).advance(1)
    assert met == [True, True, True]
    assert tasks_logged(tmp_path) == [1]


def test_a_row_that_fails_waits_for_the_files(config, tmp_path, monkeypatch):
    """The directory is given back when nobody writes into it any more."""
    begun, ended = threading.Event(), threading.Event()
    save_file = state.save_file

    def row(recall, tasks):
        assert begun.wait(timeout=60)
        raise KeyboardInterrupt

    def slow(tensors, path):
        begun.set()
        time.sleep(0.2)
        save_file(tensors, path)
        ended.set()

    with monkeypatch.context() as patch:
        patch.setattr(Recall, "row", row)
        patch.setattr(state, "save_file", slow)
        trajectory = Trajectory(config("vanilla"), tmp_path)
        with pytest.raises(KeyboardInterrupt):
            trajectory.advance(1)
    assert ended.is_set()
    assert trajectory.horizon == 0
    assert trajectory.advance(1).horizon == 1
