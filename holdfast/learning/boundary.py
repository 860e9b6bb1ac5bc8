"""The order of the operations around one task. Nothing else decides it.

Source: alg. app-task-boundary.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from torch import Tensor

from holdfast.allocation.base import Closing, Opening
from holdfast.anchors.base import TaskEnd, TaskStart
from holdfast.learning.learner import Learner, Sequences
from holdfast.learning.progress import Progress, Stopwatch
from holdfast.learning.teacher import replay_set, states_of, without_questions_of
from holdfast.learning.training import NO_PAST, Past, optimise


@dataclass(frozen=True)
class TaskReport:
    """What learning one task was like.

    factors: the trained coordinates [P], before their fate; replay: the replay set; epochs: mean
    of each term of the objective, by epoch; seconds: by phase.
    """

    task: int
    factors: Tensor
    replay: Sequences
    epochs: list[dict[str, float]]
    seconds: dict[str, float] = field(default_factory=dict)


def learn_task(learner: Learner, sequences: Sequences, progress: Progress) -> TaskReport:
    """Learn the next task from its training sequences, in task order."""
    task = learner.completed + 1
    adapters, allocation = learner.adapters, learner.allocation
    watch = Stopwatch()

    past = ask_previous_model(learner, task, sequences, watch, progress) if task > 1 else NO_PAST
    allocation.begin(adapters, Opening(task, learner.config.seed))
    start = TaskStart(task, adapters.parameters.detach())
    for _, anchor in learner.anchors:
        anchor.begin(start)

    with watch.phase("training"):
        epochs = optimise(learner, task, sequences, past, progress)

    with watch.phase("boundary"):
        trained = adapters.parameters.detach().clone()
        gradient = partial(learner.sequence_gradient, sequences)
        for _, anchor in learner.anchors:
            anchor.end(TaskEnd(task, trained, len(sequences), gradient))
        allocation.end(Closing(task, learner.mean_inputs(sequences)))
        allocation.retire(adapters)

    learner.completed = task
    return TaskReport(task, trained, past.replay, epochs, watch.seconds)


def ask_previous_model(
    learner: Learner, task: int, sequences: Sequences, watch: Stopwatch, progress: Progress
) -> Past:
    """All that the model after task ``task - 1`` will be asked."""
    backbone = learner.backbone
    learner.adapters.evaluating()
    replay: Sequences = []
    if learner.replay is not None:
        with watch.phase("sampling"):
            replay = replay_set(
                backbone,
                learner.replay,
                learner.config.sampling,
                seed=learner.config.seed,
                task=task,
                keep_stop=learner.config.template.append_eos,
            )
        none = "every replay sample was empty"
        if replay and learner.replay.skip_outdated:
            replay = without_questions_of(sequences, replay, backbone, learner.template)
            none = "every replay sample asks what the task answers anew"
        if not replay:
            progress.event(f"task {task}: {none}; learning it without replay")
    with watch.phase("teacher"):
        replay_states = states_of(backbone, replay) if replay else None
        current_states = states_of(backbone, sequences) if learner.needs_teacher else None
    return Past(replay, replay_states, current_states)
