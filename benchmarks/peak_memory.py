"""Peak resident memory of a process that learns two tasks and asks a row."""

from __future__ import annotations

import functools

from benchmarks.children import ask, peak_resident
from benchmarks.pairing import Measurement, Plan
from benchmarks.record import Report, command
from benchmarks.twins import FULL, Twins, configuration, items
from holdfast.backbone.load import load_backbone
from holdfast.evaluation.recall import Recall
from holdfast.prediction.shape import Shape
from reference.recall import accuracy

# What a step of the full method holds for each coordinate of the factors, whatever the order of its
# work: value, gradient, two moments; reference, importance, path and the fit term's gradient. What
# passes through the model is not counted, for all of it can be made again.
_NUMBERS_A_COORDINATE = 8


def measure(plan: Plan) -> Report:
    """MiB at the highest point, each side in processes of its own."""
    if plan.smoke:
        # A process for each would check nothing more than this.
        use = functools.partial(used, count=8, samples=4)
    else:
        use = functools.partial(ask, "benchmarks.peak_memory", "used")
    shape = Shape.of(load_backbone().model, configuration(FULL).lora)
    floor = _NUMBERS_A_COORDINATE * shape.scalar * shape.trainable / 2**20
    pairs = [(use("engine", FULL), use("reference", FULL)) for _ in range(plan.rounds)]
    measured = []
    for index, what in enumerate(("whole process", "added by learning")):
        ours, theirs = ([pair[side][index] for pair in pairs] for side in (0, 1))
        # The floor of a whole process would be that of its libraries.
        least = floor if index else None
        measured.append(Measurement(f"{FULL}, {what}", "MiB", ours, theirs, least))
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
    sampling = {"samples": samples, "max_new_tokens": 48, "temperature": 1.0}
    twins = Twins(configuration(method, optim={"epochs": 2}, sampling=sampling))
    stream = items(2, count)
    before = peak_resident()
    for number, task in enumerate(stream.tasks, start=1):
        sequences = twins.learner.encode(task)
        if side == "engine":
            twins.engine_learns(sequences)
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
