"""Peak resident memory of a process that learns two tasks and asks a row."""

from __future__ import annotations

import functools

from benchmarks.children import ask, peak_resident
from benchmarks.pairing import Measurement, Plan
from benchmarks.record import Report, command
from benchmarks.storage import resident
from benchmarks.twins import FULL, Twins, configuration, items
from holdfast.backbone.load import load_backbone
from holdfast.evaluation.recall import Recall
from holdfast.learning.learner import Learner
from reference.recall import accuracy

METHODS = (FULL,)


def measure(plan: Plan) -> Report:
    """MiB at the highest point, each side in processes of its own."""
    if plan.smoke:
        # A process for each would check nothing more than this.
        use = functools.partial(used, count=8, samples=4)
    else:
        use = functools.partial(ask, "benchmarks.peak_memory", "used")
    measured = []
    for method in METHODS:
        learner = Learner(configuration(method), load_backbone())
        floors = (None, resident(learner, learner.config) / 2**20)
        pairs = [(use("engine", method), use("reference", method)) for _ in range(plan.rounds)]
        for index, what in enumerate(("whole process", "added by learning")):
            ours, theirs = ([pair[side][index] for pair in pairs] for side in (0, 1))
            name = f"{method}, {what}"
            measured.append(Measurement(name, "MiB", ours, theirs, floors[index]))
    return Report(
        "peak_memory",
        "Peak memory",
        "Highest resident memory of a process that learns two tasks of 16 items with 32 replay "
        "samples of at most 48 tokens and asks for a row. Added by learning: the same, less what "
        "was used once libraries and model were loaded. The floor is what a step holds for the "
        "factors: values, gradients, moments, and what Synaptic Intelligence adds.",
        measured,
    )


def used(side: str, method: str, count: int = 16, samples: int = 32) -> tuple[float, float]:
    """Peak MiB of this process, and how far above the loaded model, for one side of a method."""
    data = {"samples": samples, "max_new_tokens": 48, "generation_temperature": 1.0}
    twins = Twins(configuration(method, optim={"epochs": 2}, data=data))
    stream = items(2, count)
    before = peak_resident()
    for number, task in enumerate(stream.tasks, start=1):
        sequences = twins.learner.encode(task)
        if side == "engine":
            twins.engine_learns(sequences)
            twins.learner.adapters.evaluating()
            recall = Recall(twins.learner.backbone, twins.learner.template, exact_case=True)
            recall.row(stream.tasks[:number])
            continue
        given = twins.given(sequences, [])
        if number > 1 and twins.settings.replay_weight is not None:
            drawn = twins.reference_samples(twins.state.backbone)
            given = twins.given(sequences, drawn)
        result = twins.reference_learns(given)
        # One item at a time: two of them take as much memory as all.
        asked = [(item.question, item.answer, item.aliases) for item in task.items[:2]]
        accuracy(result.model, twins.twin.tokenizer, asked, twins.learner.backbone.seed_token)
    return peak_resident(), peak_resident() - before


if __name__ == "__main__":
    command(measure, rounds=1)
