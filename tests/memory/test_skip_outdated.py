"""data.skip_outdated: what the model rehearses leaves out what is being answered anew."""

from __future__ import annotations

import pytest
import torch

from holdfast import RunConfig, Trajectory
from holdfast.allocation.base import Opening
from holdfast.anchors.base import TaskStart
from holdfast.backbone.load import load_backbone
from holdfast.learning.learner import Learner
from holdfast.learning.progress import Progress
from holdfast.learning.teacher import states_of
from holdfast.learning.training import Past, optimise
from holdfast.streams import Item, Task
from tests.memory.memories import MONDAY, TUESDAY, values
from tests.memory.test_memory import stream_of
from tests.trajectory.outcome import result_of


def settings(backbone, skip, method="replay"):
    optim = {"epochs": 2, "batch_size": 2, "lr": 0.03}
    return RunConfig.of(values(backbone, method, optim=optim, data={"skip_outdated": skip}))


def trained(backbone, skip, replayed):
    """The factors after a step on a corrected fact, rehearsing some sequences."""
    learner = Learner(settings(backbone, skip), load_backbone(settings(backbone, skip).backbone))
    new = learner.encode(Task("new", (Item(MONDAY[0][0], "Orsa"),)))
    replay = learner.encode(Task("old", tuple(Item(*fact) for fact in replayed)))
    past = Past(replay, states_of(learner.backbone, replay), None)
    learner.allocation.begin(learner.adapters, Opening(1, learner.config.seed))
    for _, anchor in learner.anchors:
        anchor.begin(TaskStart(2, learner.adapters.parameters.detach()))
    optimise(learner, 2, new, past, Progress())
    return learner.adapters.parameters.detach().clone()


def test_the_old_answer_is_not_rehearsed(backbone_directory):
    rest = trained(backbone_directory, True, MONDAY[1:])
    torch.testing.assert_close(trained(backbone_directory, True, MONDAY), rest)
    assert not torch.allclose(trained(backbone_directory, False, MONDAY), rest, atol=1e-3)


@pytest.mark.usefixtures("quick")
def test_it_changes_nothing_where_no_question_comes_again(backbone_directory, tmp_path):
    for skip in (False, True):
        config = settings(backbone_directory, skip, "sd_replay_merge")
        stream = stream_of(MONDAY, TUESDAY)
        Trajectory(config, tmp_path / str(skip), stream=stream).advance()
    assert result_of(tmp_path / "True") == result_of(tmp_path / "False")
