"""One optimiser step: forward, losses, backward, clipping and AdamW, beside the reference's."""

from __future__ import annotations

from benchmarks.floor import rates_of, rates_table
from benchmarks.pairing import Measurement, Plan, alternate
from benchmarks.record import Report, command
from benchmarks.stepping import Steps
from benchmarks.twins import FULL, METHODS, Loader, Twins, configuration, items
from holdfast.learning.config import RunConfig
from holdfast.prediction import work as task_work
from holdfast.prediction.shape import Shape, Work

TARGETS = {"vanilla": 2.0, FULL: 3.0}


def measure(plan: Plan) -> Report:
    """Milliseconds a step of three methods in their second task, where every anchor acts."""
    measured = []
    for method in METHODS if not plan.smoke else METHODS[-1:]:
        config = step_configuration(method, samples=8 if plan.smoke else 64)
        steps = second_task(config, 8 if plan.smoke else 32)
        shape = steps.twins.shape
        ours, theirs = alternate(plan.rounds, steps.engine, steps.reference)
        each = 1000 / steps.count
        floor = rates_of(shape).seconds(_works(shape, steps)) * each
        measured.append(
            Measurement(
                method,
                "ms a step",
                [each * one for one in ours],
                [each * one for one in theirs],
                floor,
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
        [rates_table(shape)],
    )


def step_configuration(method: str, samples: int = 64) -> RunConfig:
    """The paper's optimiser settings, one epoch, samples of a length that is quick to draw."""
    sections = {
        "optim": {"epochs": 1},
        "sampling": {"samples": samples, "max_new_tokens": 48, "temperature": 1.0},
    }
    return configuration(method, **sections)


def second_task(config: RunConfig, count: int, load: Loader | None = None) -> Steps:
    """Both sides at the first step of their second task of ``count`` items."""
    twins = Twins(config, load)
    first, second = (twins.learner.encode(task) for task in items(2, count).tasks)
    twins.both_learn(first)
    return Steps(twins, second)


def _works(shape: Shape, steps: Steps) -> list[Work]:
    """What the steps of one call need."""
    anchors, given = steps.twins.config.composition.anchors, steps.given
    partners = given.replay_minibatches or [[]] * len(given.minibatches)
    return [
        work
        for current, replay in zip(given.minibatches, partners, strict=True)
        for work in task_work.step(shape, anchors, current, replay)
    ]


def _sizes(steps: Steps) -> str:
    current = sum(map(len, steps.sequences)) / len(steps.sequences)
    replay = steps.past.replay
    said = f"{steps.count} steps a round, {current:.0f} tokens an item"
    if replay:
        said += f", {sum(map(len, replay)) / len(replay):.0f} a replay sequence"
    return said


if __name__ == "__main__":
    command(measure, rounds=7)
