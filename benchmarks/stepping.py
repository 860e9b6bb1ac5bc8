"""The optimiser steps of one task on both sides, without what comes before and after them.

The one place of the benchmarks that reaches below `learn_task`.
"""

from __future__ import annotations

import copy

from benchmarks.twins import Twins
from holdfast.allocation.base import Opening
from holdfast.anchors.base import TaskStart
from holdfast.learning.boundary import ask_previous_model
from holdfast.learning.learner import Lesson, Sequences
from holdfast.learning.progress import Progress, Stopwatch
from holdfast.learning.training import optimise
from reference import optimisation
from reference.learner import open_workspace
from reference.state import Task as ReferenceTask


class Steps:
    """All optimiser steps of the twins' next task; each call of a side takes them once more.

    Both sides are at the same boundary, in a fresh workspace; called equally often, both have
    taken the same steps. count: optimiser steps a call; past: what the engine's previous model
    said; given: the reference's view of the task.
    """

    def __init__(self, twins: Twins, sequences: Sequences) -> None:
        self.twins = twins
        self.sequences = sequences
        learner = twins.learner
        self.task = learner.completed + 1
        lesson = Lesson(sequences)
        self.past = ask_previous_model(learner, self.task, lesson, Stopwatch(), Progress())
        self.given: ReferenceTask = twins.given(sequences, self.past.replay)
        learner.allocation.begin(learner.adapters, Opening(self.task, twins.config.seed))
        start = TaskStart(
            self.task,
            learner.adapters.parameters.detach(),
            items=len(sequences),
            past_items=(self.task - 1) * len(sequences),
            curvature=self.past.curvature,
            general=twins.config.sampling.general,
        )
        for _, anchor in learner.anchors:
            anchor.begin(start)
        self.student = open_workspace(twins.state, twins.settings, self.given)
        self._teacher = copy.deepcopy(self.student).requires_grad_(False).eval()
        optim = twins.config.optim
        windows = -(-self.given.minibatches_per_epoch // optim.accumulation)
        self.count = optim.epochs * windows

    def engine(self) -> list[dict[str, float]]:
        """Take the steps; the mean of every term of the objective, by epoch."""
        learner = self.twins.learner
        return optimise(learner, self.task, Lesson(self.sequences), self.past, Progress())

    def reference(self) -> list[dict[str, float]]:
        """Take the steps, the teacher asked at each; every term of the objective, by step."""
        teacher = self._teacher if self.task > 1 else None
        _, terms = optimisation.optimise(
            self.student,
            teacher,
            self.given.replay_minibatches,
            self.twins.state,
            self.twins.settings,
            self.given,
        )
        return terms
