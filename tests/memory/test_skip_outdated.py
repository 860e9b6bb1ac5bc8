"""sampling.skip_outdated: what the model rehearses leaves out what is being answered anew."""

from __future__ import annotations

import pytest

from holdfast import RunConfig, Trajectory
from holdfast.backbone.load import load_backbone
from holdfast.learning.boundary import ask_previous_model
from holdfast.learning.learner import Learner, Lesson
from holdfast.learning.progress import Progress, Stopwatch
from holdfast.streams import Item, Task
from tests.memory.memories import MONDAY, TUESDAY, values
from tests.memory.test_memory import stream_of
from tests.trajectory.outcome import result_of


def settings(backbone, skip, method="replay"):
    optim = {"epochs": 2, "batch_size": 2, "lr": 0.03}
    return RunConfig.of(values(backbone, method, optim=optim, sampling={"skip_outdated": skip}))


def rehearsed(backbone, skip, monkeypatch):
    """What the model before a corrected fact is asked to rehearse, of three old ones, as text."""
    config = settings(backbone, skip)
    learner = Learner(config, load_backbone(config.backbone))
    new = learner.encode(Task("new", (Item(MONDAY[0][0], "Orsa"),)))
    old = learner.encode(Task("old", tuple(Item(*fact) for fact in MONDAY)))
    monkeypatch.setattr("holdfast.learning.boundary.replay_set", lambda *_, **__: old)
    past = ask_previous_model(learner, 2, Lesson(new), Stopwatch(), Progress())
    assert len(past.replay_states.rows([0])) == len(past.replay[0]) - 1
    return [learner.backbone.decode(sequence) for sequence in past.replay]


def test_the_old_answer_is_not_rehearsed(backbone_directory, monkeypatch):
    kept = rehearsed(backbone_directory, True, monkeypatch)
    everything = rehearsed(backbone_directory, False, monkeypatch)
    assert kept == everything[1:]
    assert MONDAY[0][0] in everything[0]


class Heard(Progress):
    def __init__(self):
        self.events = []

    def event(self, text):
        self.events.append(text)


@pytest.mark.parametrize(
    ("old", "reason"), [(MONDAY[:1], "asks what the task answers anew"), ([], "was empty")]
)
def test_where_nothing_is_left_it_is_said(backbone_directory, monkeypatch, old, reason):
    config = settings(backbone_directory, True)
    learner, heard = Learner(config, load_backbone(config.backbone)), Heard()
    new = learner.encode(Task("new", (Item(MONDAY[0][0], "Orsa"),)))
    drawn = learner.encode(Task("old", tuple(Item(*fact) for fact in old))) if old else []
    monkeypatch.setattr("holdfast.learning.boundary.replay_set", lambda *_, **__: drawn)
    past = ask_previous_model(learner, 2, Lesson(new), Stopwatch(), heard)
    assert (past.replay, past.replay_states) == ([], None)
    assert heard.events == [f"task 2: every replay sample {reason}; learning it without replay"]


@pytest.mark.usefixtures("quick")
def test_it_changes_nothing_where_no_question_comes_again(backbone_directory, tmp_path):
    for skip in (False, True):
        config = settings(backbone_directory, skip, "sd_replay_merge")
        stream = stream_of(MONDAY, TUESDAY)
        Trajectory(config, tmp_path / str(skip), stream=stream).advance()
    assert result_of(tmp_path / "True") == result_of(tmp_path / "False")
