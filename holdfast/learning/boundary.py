"""The order of the operations around one task. Nothing else decides it.

Source: alg. app-task-boundary.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache, partial

from torch import Tensor

from holdfast.allocation.base import Closing, Opening
from holdfast.anchors.base import TaskEnd, TaskStart
from holdfast.backbone.curvature import KroneckerFactors
from holdfast.core.errors import HoldfastError
from holdfast.learning.learner import Learner, Lesson, Sequences
from holdfast.learning.progress import Progress, Stopwatch
from holdfast.learning.teacher import (
    general_text,
    replay_set,
    states_of,
    without_questions_of,
)
from holdfast.learning.training import Past, optimise


@dataclass(frozen=True)
class TaskReport:
    """What learning one task was like.

    factors: the trained coordinates [P], before their fate; replay, general: what the previous
    model wrote from the replay token, and from random tokens; epochs: mean of each term of the
    objective, by epoch; seconds: by phase.
    """

    task: int
    factors: Tensor
    replay: Sequences
    general: Sequences
    epochs: list[dict[str, float]]
    seconds: dict[str, float] = field(default_factory=dict)


def learn_task(learner: Learner, lesson: Lesson, progress: Progress) -> TaskReport:
    """Learn the next task."""
    task, sequences = learner.completed + 1, lesson.sequences
    adapters, allocation = learner.adapters, learner.allocation
    watch = Stopwatch()

    past = ask_previous_model(learner, task, lesson, watch, progress)
    allocation.begin(adapters, Opening(task, learner.config.seed))
    start = TaskStart(
        task,
        adapters.parameters.detach(),
        items=len(sequences),
        past_items=lesson.past_items,
        curvature=past.curvature,
        general=learner.config.sampling.general,
    )
    for _, anchor in learner.anchors:
        anchor.begin(start)

    with watch.phase("training"):
        epochs = optimise(learner, task, lesson, past, progress)

    with watch.phase("boundary"):
        trained = adapters.parameters.detach().clone()
        gradient = partial(learner.sequence_gradient, sequences)
        own = cache(partial(_own_curvature, learner, task, lesson))
        for _, anchor in learner.anchors:
            anchor.end(TaskEnd(task, trained, len(sequences), gradient, own))
        allocation.end(Closing(task, learner.mean_inputs(sequences)))
        allocation.retire(adapters)

    learner.completed = task
    return TaskReport(task, trained, past.replay, past.general, epochs, watch.seconds)


def ask_previous_model(
    learner: Learner, task: int, lesson: Lesson, watch: Stopwatch, progress: Progress
) -> Past:
    """All that the model after task ``task - 1`` will be asked; before the first, general text."""
    sequences = lesson.sequences
    with watch.phase("sampling"):
        writes = task > 1 and learner.writes
        replay = _replay(learner, task, sequences, progress) if writes else lesson.stored
        general = []
        if learner.needs_curvature or (task == 1 and learner.needs_general):
            general = _general(learner, task)
    curvature = None
    looked_at = [*replay, *general] if learner.needs_curvature else general
    if looked_at:
        with watch.phase("curvature"):
            curvature = _finite(task, learner.curvature_on(looked_at, "curvature"))
    replay_states = current_states = None
    if task > 1:
        with watch.phase("teacher"):
            if replay and learner.replay is not None:
                replay_states = states_of(learner.backbone, replay)
            if learner.needs_teacher:
                current_states = states_of(learner.backbone, sequences)
    return Past(replay, general, replay_states, current_states, curvature)


def _replay(learner: Learner, task: int, sequences: Sequences, progress: Progress) -> Sequences:
    """What the previous model writes from the replay token."""
    config, backbone = learner.config, learner.backbone
    keep_stop = config.template.append_eos
    replay = replay_set(backbone, config.sampling, seed=config.seed, task=task, keep_stop=keep_stop)
    none = "every replay sample was empty"
    if replay and config.sampling.skip_outdated:
        replay = without_questions_of(sequences, replay, backbone, learner.template)
        none = "every replay sample asks what the task answers anew"
    if not replay:
        progress.event(f"task {task}: {none}; learning it without replay")
    return replay


def _general(learner: Learner, task: int) -> Sequences:
    config = learner.config
    if not config.sampling.general:
        return []
    keep_stop = config.template.append_eos
    return general_text(
        learner.backbone, config.sampling, seed=config.seed, task=task, keep_stop=keep_stop
    )


def _own_curvature(learner: Learner, task: int, lesson: Lesson) -> dict[str, KroneckerFactors]:
    found = learner.curvature_on(lesson.sequences, "own curvature", lesson.prompts)
    return _finite(task, found)


def _finite(task: int, curvature: dict[str, KroneckerFactors]) -> dict[str, KroneckerFactors]:
    """The same; HoldfastError where it is no number, before anything is learned from it."""
    for name, factors in curvature.items():
        if not (factors.inputs.is_finite() and factors.outputs.is_finite()):
            raise HoldfastError(
                f"task {task}: the curvature of {name} is not finite, the task is not kept; the "
                "model has diverged: lower optim.lr, or choose another precision"
            )
    return curvature
