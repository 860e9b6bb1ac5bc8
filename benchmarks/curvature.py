"""The curvature anchor: its Fisher pass, its term, and what they add to a step and to a task."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch

from benchmarks.floor import rates_of, rates_table
from benchmarks.pairing import Measurement, Plan, alternate
from benchmarks.record import Report, Table, command, number
from benchmarks.stepping import Steps
from benchmarks.training_step import second_task, step_configuration
from benchmarks.twins import Twins, configuration, items
from holdfast.anchors.kfac import quadratic_form
from holdfast.learning.boundary import learn_task
from holdfast.learning.learner import Learner, Lesson, Sequences
from holdfast.learning.progress import Progress
from holdfast.learning.training import updates_since
from holdfast.prediction import work as task_work
from holdfast.prediction.shape import Shape
from reference import adapters
from reference import curvature as plain
from reference.translation import own_uniforms

METHOD = "kfac_merge"


def measure(plan: Plan) -> Report:
    """Both parts beside the reference and the floor; a step and a task beside other methods'."""
    count = 8 if plan.smoke else 32
    steps = second_task(step_configuration(METHOD, samples=8 if plan.smoke else 64), count)
    shape = steps.twins.shape
    measured = [_fisher_pass(plan, steps, shape), _term(plan, steps, shape)]
    return Report(
        "curvature",
        "Curvature anchor",
        f"Rank {steps.twins.config.lora.rank}, S and G exact, of {count} Symbol-QA items, second "
        "task. The reference takes one position at a time and multiplies dense matrices.",
        measured,
        [_added(plan, count), rates_table(shape)],
    )


def _fisher_pass(plan: Plan, steps: Steps, shape: Shape) -> Measurement:
    """S and G of every map on a task's own sequences."""
    learner, sequences = steps.twins.learner, steps.sequences
    uniforms = own_uniforms(learner.config.seed, learner.completed + 1, sequences)
    modules = adapters.adapted(steps.student)

    def ours() -> None:
        learner.curvature_on(sequences, "own curvature")

    def theirs() -> None:
        plain.kronecker_factors(steps.student, modules, sequences, uniforms, 1.0)

    taken = alternate(plan.rounds, ours, theirs)
    floor = rates_of(shape).seconds(task_work.fisher_pass(shape, sequences))
    return Measurement("Fisher pass", "s", *taken, floor)


def _term(plan: Plan, steps: Steps, shape: Shape) -> Measurement:
    """The quadratic form and its gradient in the factors, once a step."""
    learner, student = steps.twins.learner, steps.student
    known = learner.curvature_on(steps.sequences, "own curvature")
    dense = {name: (one.inputs.dense(), one.outputs.dense()) for name, one in known.items()}
    changes = updates_since(learner.adapters)
    parameters = learner.adapters.parameters
    start = adapters.copied(adapters.factors(student))
    rho = learner.adapters.scale
    factors = [part for pair in adapters.factors(student).values() for part in pair]

    def ours() -> None:
        torch.autograd.grad(quadratic_form(changes(parameters), known), parameters)

    def theirs() -> None:
        torch.autograd.grad(plain.penalty(student, start, dense, rho), factors)

    taken = ([1000 * one for one in side] for side in alternate(plan.rounds, ours, theirs))
    floor = 1000 * rates_of(shape).seconds([task_work.term(shape)])
    return Measurement("term and gradient", "ms", *taken, floor)


def _added(plan: Plan, count: int) -> Table:
    """A step and a task with the anchor beside those of other methods, in alternation."""
    samples = 8 if plan.smoke else 64
    methods = ("merge", METHOD)
    steps = [second_task(step_configuration(method, samples), count) for method in methods]
    without, held = (
        [1000 * one / steps[0].count for one in side]
        for side in alternate(plan.rounds, *map(_from_its_start, steps))
    )
    rows = [_compared("a step, ms", "merge", without, held, "<= 1.10")]
    tasks = items(2 + plan.rounds, count).tasks
    learners = []
    for method in ("replay_merge", METHOD):
        written = samples if plan.smoke else 300
        sampling = {"samples": written, "max_new_tokens": 48, "temperature": 1.0}
        epochs = {"epochs": 1 if plan.smoke else 10}
        learner = Twins(configuration(method, optim=epochs, sampling=sampling)).learner
        learners.append(_Tasks(learner, [learner.encode(task) for task in tasks]))
        learners[-1].learn()  # the first has no past
    replayed, held = alternate(plan.rounds, *(one.learn for one in learners))
    rows.append(_compared("a task, s", "replay_merge", replayed, held, "<= 0.60"))
    return Table(
        f"What {METHOD} takes, beside others",
        ["what", "beside", "theirs", METHOD, "ratio", "target"],
        rows,
    )


def _from_its_start(steps: Steps) -> Callable[[], None]:
    """The steps of the task, from the workspace that it was opened with: B is zero there."""
    parameters = steps.twins.learner.adapters.parameters
    start = parameters.detach().clone()

    def take() -> None:
        with torch.no_grad():
            parameters.copy_(start)
        steps.engine()

    return take


class _Tasks:
    """A learner and the tasks that it learns one after another."""

    def __init__(self, learner: Learner, tasks: list[Sequences]) -> None:
        self._learner, self._tasks = learner, tasks

    def learn(self) -> None:
        done = self._learner.completed
        sequences = self._tasks[done]
        past = sum(map(len, self._tasks[:done]))
        learn_task(self._learner, Lesson(sequences, past_items=past), Progress())


def _compared(
    what: str, beside: str, theirs: list[float], ours: list[float], target: str
) -> list[str]:
    ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
    medians = [number(statistics.median(side)) for side in (theirs, ours)]
    return [what, beside, *medians, f"{ratio:.2f}", target]


if __name__ == "__main__":
    command(measure, rounds=5)
