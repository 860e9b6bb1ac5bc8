"""Killed at any instant, a trajectory ends as if nothing had happened, bit for bit."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time

import pytest

from holdfast import Trajectory
from holdfast.evaluation.recall import Recall
from holdfast.learning.progress import Progress
from holdfast.model import tensors as files
from tests.trajectory.children import finish, start
from tests.trajectory.instants import heard
from tests.trajectory.outcome import contents_of, result_of, tasks_logged

STATEFUL = "si_online_ewc_kfac_sd_replay_merge"
TWO_TASKS = {
    "stream": {"tasks": 2, "items_per_task": 2},
    "sampling": {"samples": 2},
    "keep": {"snapshot_every": 2},
}


class Done(Progress):
    """Counts the tasks that were reported as learned."""

    tasks = 0

    def task_done(self, task, horizon, matrix) -> None:
        self.tasks = task


@pytest.fixture(scope="module")
def instants(config, tmp_path_factory):
    """Copies of a directory at every instant of two tasks, each with the tasks done by then.

    Whatever a killed process leaves is such a copy: the kernel keeps what was written.
    """
    root = tmp_path_factory.mktemp("instants")
    place, done = root / "run", Done()
    copies, seen = [], set()

    def hear(name: str) -> None:
        contents = contents_of(place)
        key = tuple(contents.items())
        if key not in seen:
            seen.add(key)
            copies.append((shutil.copytree(place, root / str(len(copies))), done.tasks, name))

    with heard(hear), pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "getpid", lambda: 1)  # the killed process had another number
        Trajectory(config(STATEFUL, **TWO_TASKS), place).advance(progress=done)
    return copies


@pytest.mark.usefixtures("quick")
def test_killed_at_every_instant(instants, config, undisturbed):
    """Unfinished files, files of no commit, half a line of the log: none of it matters."""
    whole = undisturbed(STATEFUL, 2, **TWO_TASKS)
    expected, names = result_of(whole), contents_of(whole).keys()
    assert len(instants) > 40
    assert {name for _, _, name in instants} >= {"half", "flush", "renamed", "removed"}
    horizons = []
    for place, done, _ in instants:
        trajectory = Trajectory(config(STATEFUL, **TWO_TASKS), place)
        horizons.append(trajectory.horizon)
        assert done <= trajectory.horizon <= done + 1
        trajectory.advance()
        assert result_of(place) == expected
        assert contents_of(place).keys() == names
        assert tasks_logged(place) == [1, 2]
    assert horizons == sorted(horizons)
    assert set(horizons) == {0, 1, 2}


def test_interrupted_by_the_user_within_one_process(config, undisturbed, tmp_path):
    """The model in memory has learned more than is on disk; it is not learned on from."""

    class Impatient(Progress):
        def step(self, phase, task, done, total) -> None:
            if (task, done) == (2, total):
                raise KeyboardInterrupt

    trajectory = Trajectory(config(STATEFUL), tmp_path)
    with pytest.raises(KeyboardInterrupt):
        trajectory.advance(4, Impatient())
    assert trajectory.horizon == 1
    assert trajectory.learner().completed == 1
    trajectory.advance(4)
    assert result_of(tmp_path) == result_of(undisturbed(STATEFUL, 4))


def test_two_writers(values, config, undisturbed, tmp_path):
    """The second is told so at once; the lock of a killed writer is free."""
    child = start(values("vanilla"), tmp_path, hold=True)
    assert child[1].recv() == "holding"
    before = contents_of(tmp_path)
    code, words = finish(start(values("vanilla"), tmp_path))
    assert code == 0
    assert words == (
        f"{tmp_path}: another process is writing here; wait for it, or choose another directory"
    )
    assert contents_of(tmp_path) == before
    child[0].kill()
    assert finish(child)[0] == -signal.SIGKILL
    Trajectory(config("vanilla"), tmp_path).advance(4)
    assert result_of(tmp_path) == result_of(undisturbed("vanilla", 4))


def test_asking_for_what_is_learned_needs_no_lock(values, config, undisturbed, tmp_path):
    place = shutil.copytree(undisturbed("vanilla", 2), tmp_path / "run")
    child = start(values("vanilla"), place, hold=True)
    assert child[1].recv() == "holding"
    (place / "matrix.csv").unlink()  # as if it had been killed right after its commit
    reader = Trajectory(config("vanilla"), place)
    assert reader.advance(2).horizon == 2
    child[0].kill()
    finish(child)
    assert reader.advance(2).horizon == 2
    assert result_of(place) == result_of(undisturbed("vanilla", 2))


@pytest.mark.usefixtures("quick")
def test_files_and_the_row_do_not_wait_for_each_other(config, tmp_path, monkeypatch):
    """A task's files are written while the model is asked for its row."""
    asked, begun, met = threading.Event(), threading.Event(), []
    ask, save_file = Recall.row, files.save_file

    def row(recall, tasks):
        asked.set()
        met.append(begun.wait(timeout=60))
        return ask(recall, tasks)

    def save(tensors, path, **more):
        begun.set()
        met.append(asked.wait(timeout=60))
        save_file(tensors, path, **more)

    monkeypatch.setattr(Recall, "row", row)
    monkeypatch.setattr(files, "save_file", save)
    Trajectory(config("si_replay_merge"), tmp_path).advance(1)
    assert met == [True, True, True]
    assert tasks_logged(tmp_path) == [1]


@pytest.mark.usefixtures("quick")
def test_a_row_that_fails_waits_for_the_files(config, tmp_path, monkeypatch):
    """The directory is given back when nobody writes into it any more."""
    begun, ended = threading.Event(), threading.Event()
    save_file = files.save_file

    def row(recall, tasks):
        assert begun.wait(timeout=60)
        raise KeyboardInterrupt

    def slow(tensors, path, **more):
        begun.set()
        time.sleep(0.2)
        save_file(tensors, path, **more)
        ended.set()

    with monkeypatch.context() as patch:
        patch.setattr(Recall, "row", row)
        patch.setattr(files, "save_file", slow)
        trajectory = Trajectory(config("vanilla"), tmp_path)
        with pytest.raises(KeyboardInterrupt):
            trajectory.advance(1)
    assert ended.is_set()
    assert trajectory.horizon == 0
    assert trajectory.advance(1).horizon == 1
