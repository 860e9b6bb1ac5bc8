"""Time an optimiser step, from forward pass to AdamW, against the plain reference."""

from __future__ import annotations

import copy
from collections.abc import Callable

from benchmarks.pairing import Measurement, Plan, alternate
from benchmarks.record import Report, command
from benchmarks.twins import FULL, METHODS, Loader, Twins, configuration, items
from holdfast.anchors.base import Update, updates_since
from holdfast.learning.config import RunConfig
from holdfast.learning.learner import Sequences, TaskData
from holdfast.learning.progress import Progress, Stopwatch
from holdfast.learning.task import open_task, optimise
from reference import optimisation
from reference.learner import open_workspace
from reference.state import Task as ReferenceTask

TARGETS = {"vanilla": 2.0, FULL: 3.0}


class Steps:
    """The optimiser steps of the twins' next task; each call of a side takes them all again.

    Both sides begin at the same boundary, in a fresh workspace; after equally many calls, both have
    taken the same steps. count: optimiser steps per call; past: outputs of the engine's previous
    model; given: the reference's view of the task.
    """

    def __init__(self, twins: Twins, sequences: Sequences) -> None:
        self.twins = twins
        self.sequences = sequences
        learner = twins.learner
        self.task = learner.completed + 1
        data = TaskData(sequences, past_items=learner.completed * len(sequences))
        self.past, start = open_task(learner, data, Stopwatch(), Progress())
        self.given: ReferenceTask = twins.reference_task(sequences, self.past.replay)
        self.updates: Callable[[], dict[str, Update]] = dict
        if learner.needs("updates"):
            self.updates = updates_since(start.parameters, learner.workspace)
        for name, anchor in learner.anchors:
            learner.states[name] = anchor.begin(learner.states[name], start)
        self.student = open_workspace(twins.state, twins.settings, self.given)
        self._teacher = copy.deepcopy(self.student).requires_grad_(False).eval()
        optim = twins.config.optim
        minibatches = self.given.minibatches_per_epoch
        assert minibatches is not None
        self.count = optim.epochs * -(-minibatches // optim.accumulation)

    def engine(self) -> list[dict[str, float]]:
        """Take the steps; return the mean of every term of the objective, by epoch."""
        learner = self.twins.learner
        data = TaskData(self.sequences)
        return optimise(learner, self.task, data, self.past, self.updates, Progress())

    def reference(self) -> list[dict[str, float]]:
        """Take the steps, running the teacher at each; return every term, by step."""
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


def measure(plan: Plan) -> Report:
    """Milliseconds per step of three methods in their second task, where every anchor acts."""
    measured = []
    for method in METHODS if not plan.smoke else METHODS[-1:]:
        config = step_configuration(method, samples=8 if plan.smoke else 64)
        steps = second_task(config, 8 if plan.smoke else 32)
        ours, theirs = alternate(plan.rounds, steps.engine, steps.reference)
        scale = 1000 / steps.count
        measured.append(
            Measurement(
                method,
                "ms a step",
                [scale * value for value in ours],
                [scale * value for value in theirs],
                TARGETS.get(method),
                note=_sizes(steps),
            )
        )
    return Report(
        "training_step",
        "Training step",
        "Second task, minibatches of 8 Symbol-QA items and as many replay sequences, rank 32, "
        "dropout 0.05. The reference asks its teacher at every step; the engine has asked it "
        "before, which one task end to end includes.",
        measured,
    )


def step_configuration(method: str, samples: int = 64) -> RunConfig:
    """The paper's optimiser settings for one epoch, with samples short enough to draw quickly."""
    sections = {
        "optim": {"epochs": 1},
        "sampling": {"samples": samples, "max_new_tokens": 48, "temperature": 1.0},
    }
    return configuration(method, **sections)


def second_task(config: RunConfig, count: int, load: Loader | None = None) -> Steps:
    """Bring both sides to the first step of their second task; count: items per task."""
    twins = Twins(config, load)
    first, second = (twins.learner.encode(task) for task in items(2, count).tasks)
    twins.both_learn(first)
    return Steps(twins, second)


def _sizes(steps: Steps) -> str:
    current = sum(map(len, steps.sequences)) / len(steps.sequences)
    replay = steps.past.replay
    note = f"{steps.count} steps a round, {current:.0f} tokens an item"
    if replay:
        note += f", {sum(map(len, replay)) / len(replay):.0f} a replay sequence"
    return note


if __name__ == "__main__":
    command(measure, rounds=7)
