"""The engine and the plain reference, side by side on one configuration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from holdfast.learning.config import RunConfig
from holdfast.learning.learner import Learner, Sequences, TaskData
from holdfast.learning.progress import Progress
from holdfast.learning.task import TaskReport, learn_task
from holdfast.model.backbone import Backbone
from holdfast.model.load import load_backbone
from holdfast.streams import Stream, symbol_qa
from reference.learner import run_task
from reference.state import State
from reference.state import Task as ReferenceTask
from reference.translation import reference_task, settings_of

FULL = "si_sd_replay_merge"
METHODS = ("vanilla", "replay_merge", FULL)
GENERATED_AT_ONCE = 32  # the generation batch of the paper's recipe
NO_TOKEN = 1 << 30  # as a stop token: no vocabulary has it

Loader = Callable[[], Backbone]


def configuration(method: str, **sections: Any) -> RunConfig:
    """The paper's settings plus an appended end of sequence; sections: settings that differ."""
    return RunConfig.of({"method": method, "template": {"append_eos": True}, **sections})


def items(tasks: int, count: int) -> Stream:
    """A stream of Symbol-QA; every benchmark uses the same seed."""
    return symbol_qa(tasks=tasks, items=count, seed=7)


class Twins:
    """Both learners, each with its own backbone, on the same sequences."""

    def __init__(self, config: RunConfig, load: Loader | None = None) -> None:
        load = load or (lambda: load_backbone(config.backbone))
        self.config = config
        self.learner = Learner(config, load())
        self.twin = load()
        if self.learner.backbone.seed_token is not None:
            self.twin.add_replay_token()
        self.settings = settings_of(config, self.twin.pad_token)
        self.state = State(self.twin.model)

    def engine_learns(self, sequences: Sequences) -> TaskReport:
        """Let the engine learn its next task, without evaluating it."""
        return learn_task(self.learner, TaskData(sequences), Progress())

    def reference_task(self, sequences: Sequences, replay: Sequences) -> ReferenceTask:
        """The reference's next task, with the engine's random draws."""
        return reference_task(self.learner, self.state.completed + 1, sequences, replay)

    def both_learn(self, sequences: Sequences) -> None:
        """Let both sides learn one task, with the same random draws."""
        report = self.engine_learns(sequences)
        run_task(self.state, self.settings, self.reference_task(sequences, report.replay))

    def hand_over(self) -> Any:
        """Copy the engine's weights into the reference's backbone, and return that model.

        The allocation rule must merge, so that the dense matrices are the whole model.
        """
        assert self.learner.allocation.after_task == "merge"
        with torch.no_grad():
            for name, dense in self.learner.workspace.dense().items():
                self.twin.model.get_submodule(name).weight.copy_(dense)
        return self.twin.model.eval()
