"""Learn one task of a run: all operations in their order. ``Anchored`` does it for other loops.

Source: alg. app-task-boundary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import islice

import torch

from holdfast.allocation.base import Closing, Opening
from holdfast.anchors.base import TaskEnd, TaskStart, Text, Tree, Update, updates_since
from holdfast.anchors.general import refuse_no_text
from holdfast.core.errors import HoldfastError
from holdfast.core.processes import broadcast_
from holdfast.learning.config import Optimisation
from holdfast.learning.learner import Learner, Sequences, TaskData
from holdfast.learning.progress import OptimiserStep, Progress, Stopwatch
from holdfast.learning.teacher import (
    Past,
    first_general_text,
    general_text,
    replay_set,
    states_of,
)
from holdfast.learning.training import TaskOptimizer, TaskTrainer
from holdfast.model.kronecker import KroneckerFactors


@dataclass(frozen=True)
class TaskReport:
    """Learning one task.

    factors: the trained coordinates, before the allocation rule retires them; replay, general: as
    in :class:`Past`; epochs: the mean of each term of the objective, by epoch; seconds: by phase.
    """

    task: int
    factors: Tree
    replay: Sequences
    general: Sequences
    epochs: list[dict[str, float]]
    steps: int
    seconds: dict[str, float] = field(default_factory=dict)


def learn_task(learner: Learner, data: TaskData, progress: Progress) -> TaskReport:
    """Learn the next task; HoldfastError if losses, curvature or a state are not finite."""
    task, sequences = learner.completed + 1, data.sequences
    workspace, allocation = learner.workspace, learner.allocation
    watch = Stopwatch()

    past, start = open_task(learner, data, watch, progress)
    updates = updates_since(start.parameters, workspace) if learner.needs("updates") else dict
    for name, anchor in learner.anchors:
        learner.states[name] = anchor.begin(learner.states[name], start)

    with watch.phase("training"):
        epochs = optimise(learner, task, data, past, updates, progress)

    with watch.phase("boundary"):
        trained = workspace.copied()
        gradient = partial(learner.sequence_gradient, data)
        curvature = cache(
            partial(_finite_curvature, learner, task, sequences, "own curvature", data.prompts)
        )
        positions = partial(learner.positions_on, sequences, "own positions", data.prompts)
        end = TaskEnd(task, trained, len(sequences), gradient, curvature, updates(), positions)
        for name, anchor in learner.anchors:
            learner.states[name] = anchor.end(learner.states[name], end)
        closing = Closing(task, partial(learner.mean_inputs, sequences))
        observed = allocation.end(learner.allocation_state, closing)
        learner.allocation_state = allocation.retire(observed, workspace)
        _check_states(task, learner)

    learner.completed = task
    steps = len(epochs) * learner.config.optim.steps_in_epoch(len(sequences))
    return TaskReport(task, trained, past.replay, past.general, epochs, steps, watch.seconds)


def optimise(
    learner: Learner,
    task: int,
    data: TaskData,
    past: Past,
    updates: Callable[[], dict[str, Update]],
    progress: Progress,
) -> list[dict[str, float]]:
    """Minimise eq. app-objective on one task; return the mean of each term in every epoch.

    updates: gives the change of every map since the task began; ``dict`` if no anchor needs it.
    With ``optim.acquired``, epochs beyond the least number follow until one reaches that accuracy
    on the task's answer tokens, up to ``optim.max_steps``; ``optim.cooldown`` epochs end the task.
    Raises HoldfastError, naming the epoch, when a term or the factors are not finite.
    """
    settings = learner.config.optim
    count = len(data.sequences)
    least, most = settings.epochs_of(count), settings.most_epochs_of(count)
    in_epoch = settings.steps_in_epoch(count)
    parameters = learner.workspace.parameters()
    optimizer = TaskOptimizer(parameters.values(), settings, least * in_epoch)
    trainer = TaskTrainer(learner, task, data, past, updates, optimizer)
    epochs: list[dict[str, float]] = []
    taken = 0

    def learn_epoch() -> None:
        nonlocal taken
        epoch, values = len(epochs), []
        minibatches = trainer.minibatches(epoch)
        while window := list(islice(minibatches, settings.accumulation)):
            terms = trainer.optimiser_step(window)
            values += terms
            taken += 1
            progress.optimised(
                OptimiserStep(task, taken, terms, optimizer.rate, trainer.gradient_norm)
            )
            # With ``acquired`` the total is unknown: show the least, then one epoch more each time.
            total = max(settings.steps_of(count), (epoch + 1) * in_epoch)
            progress.step("training", task, taken, total)
        means = {
            name: float(torch.stack([value[name] for value in values]).mean()) for name in values[0]
        }
        # Processes on unlike machines round differently, which must not add up.
        for parameter in parameters.values():
            broadcast_(parameter.data)
        not_finite = [name for name, mean in means.items() if not math.isfinite(mean)]
        # Check the factors too: no term was computed after the last step.
        if not all(bool(factor.isfinite().all()) for factor in parameters.values()):
            not_finite.append("the factors")
        if not_finite:
            raise HoldfastError(
                f"task {task}, epoch {epoch + 1}: {', '.join(not_finite)} not finite, the task is "
                "not kept; lower optim.lr or the anchors' strengths, then run the same command "
                "again"
            )
        epochs.append(means)

    while len(epochs) < least or (len(epochs) < most and not _acquired(settings, epochs[-1])):
        learn_epoch()
    cooldown = settings.cooldown_of(count)
    optimizer.cool_down(cooldown * in_epoch)
    for _ in range(cooldown):
        learn_epoch()
    return epochs


def _acquired(settings: Optimisation, epoch: Mapping[str, float]) -> bool:
    """Whether an epoch reached ``settings.acquired``; True when that is None."""
    return settings.acquired is None or epoch["acquired"] >= settings.acquired - 1e-6  # rounding


def open_task(
    learner: Learner, data: TaskData, watch: Stopwatch, progress: Progress
) -> tuple[Past, TaskStart]:
    """Ask the previous model, then let the allocation rule begin the next task.

    Returns its outputs, and what anchors get at the beginning of the task.
    """
    task, workspace = learner.completed + 1, learner.workspace
    past = ask_previous_model(learner, task, data, watch, progress)
    opening = Opening(task, learner.config.seed)
    learner.allocation_state = learner.allocation.begin(
        learner.allocation_state, workspace, opening
    )
    positions = partial(learner.positions_on, past.general, "positions", ())
    return past, TaskStart(
        task,
        workspace.copied(),
        items=len(data.sequences),
        past_items=data.past_items,
        curvature=past.curvature,
        general=learner.config.sampling.general,
        positions=positions if past.general else None,
        text=partial(_text, learner, watch) if task == 1 else None,
    )


def ask_previous_model(
    learner: Learner, task: int, data: TaskData, watch: Stopwatch, progress: Progress
) -> Past:
    """Sample the previous model, take its curvature and states; for task 1 only general text."""
    replay = data.stored
    curvature = replay_states = current_states = None
    prior = learner.needs("prior_curvature")
    with watch.phase("sampling"):
        if task > 1 and learner.writes:
            replay = replay_set(learner, task)
            if not replay:
                progress.event(
                    f"task {task}: every replay sample was empty; learning it without replay"
                )
        general = _general(learner, task)
    samples = [*replay, *general] if learner.needs("curvature") else general
    if samples and (prior or learner.needs("curvature")):
        with watch.phase("curvature"):
            curvature = _finite_curvature(learner, task, samples, "curvature")
    if task > 1:
        with watch.phase("teacher"):
            if replay and learner.replay is not None:
                replay_states = states_of(learner.backbone, replay)
            if learner.needs("teacher"):
                current_states = states_of(learner.backbone, data.sequences)
    return Past(replay, general, replay_states, current_states, curvature)


def _general(learner: Learner, task: int) -> Sequences:
    """General text for the anchors that read it before a task; empty if there are none."""
    count, needs = learner.config.sampling.general, learner.needs
    if task == 1:
        is_read = needs("curvature") or needs("prior_curvature") or needs("positions")
        return first_general_text(learner, count) if count and is_read else []
    return general_text(learner, task, count) if count and needs("curvature") else []


def _text(learner: Learner, watch: Stopwatch, count: int) -> Text:
    """Sample ``count`` general texts from the untouched model; return them with its states."""
    with watch.phase("sampling"):
        sequences = first_general_text(learner, count)
    refuse_no_text(sequences)
    with watch.phase("teacher"):
        return Text(sequences, states_of(learner.backbone, sequences))


def _finite_curvature(
    learner: Learner, task: int, sequences: Sequences, purpose: str, prompts: Sequence[int] = ()
) -> dict[str, KroneckerFactors]:
    """The curvature on sequences; HoldfastError, before any training, if it is not finite."""
    curvature = learner.curvature_on(sequences, purpose, prompts)
    for name, factors in curvature.items():
        finite = factors.inputs.is_finite() and factors.outputs.is_finite()
        _check(task, f"the curvature of {name}", finite)
    return curvature


def _check_states(task: int, learner: Learner) -> None:
    """Raise HoldfastError if a state of an anchor or of the allocation rule is not finite."""
    states = {name: anchor.pack(learner.states[name]) for name, anchor in learner.anchors}
    states[learner.config.composition.allocation] = dict(learner.allocation_state)
    for name, state in states.items():
        for part, tensor in state.items():
            _check(task, f"{part} of {name}", bool(tensor.isfinite().all()))


def _check(task: int, name: str, finite: bool) -> None:
    if not finite:
        raise HoldfastError(
            f"task {task}: {name} is not finite, the task is not kept; the model has diverged: "
            "lower optim.lr, or choose another precision"
        )
