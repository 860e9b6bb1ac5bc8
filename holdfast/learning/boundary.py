"""Learn one task of a run: all operations in their order. ``Anchored`` does it for other loops.

Source: alg. app-task-boundary.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache, partial

from holdfast.allocation.base import Closing, Opening
from holdfast.anchors.base import TaskEnd, TaskStart, Text, Tree
from holdfast.anchors.general import refuse_no_text
from holdfast.anchors.updates import updates_since
from holdfast.core.errors import HoldfastError
from holdfast.learning.general_cache import first_general_text
from holdfast.learning.learner import Learner, Lesson, Sequences
from holdfast.learning.progress import Progress, Stopwatch
from holdfast.learning.teacher import general_text, replay_set, states_of
from holdfast.learning.training import Past, optimise
from holdfast.model.curvature import KroneckerFactors


@dataclass(frozen=True)
class TaskReport:
    """The results and measurements of learning one task.

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


def learn_task(learner: Learner, lesson: Lesson, progress: Progress) -> TaskReport:
    """Learn the next task; HoldfastError if losses, curvature or a state are not finite."""
    task, sequences = learner.completed + 1, lesson.sequences
    workspace, allocation = learner.workspace, learner.allocation
    watch = Stopwatch()

    past, start = open_task(learner, lesson, watch, progress)
    updates = updates_since(start.parameters, workspace) if learner.needs("updates") else dict
    for name, anchor in learner.anchors:
        learner.states[name] = anchor.begin(learner.states[name], start)

    with watch.phase("training"):
        epochs = optimise(learner, task, lesson, past, updates, progress)

    with watch.phase("boundary"):
        trained = workspace.copied()
        gradient = partial(learner.sequence_gradient, lesson)
        curvature = cache(partial(_task_curvature, learner, task, lesson))
        positions = partial(learner.positions_on, sequences, "own positions", lesson.prompts)
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


def open_task(
    learner: Learner, lesson: Lesson, watch: Stopwatch, progress: Progress
) -> tuple[Past, TaskStart]:
    """Ask the previous model, then let the allocation rule begin the next task.

    Returns what the previous model said, and what anchors get at the beginning of the task.
    """
    task, workspace = learner.completed + 1, learner.workspace
    past = ask_previous_model(learner, task, lesson, watch, progress)
    opening = Opening(task, learner.config.seed)
    learner.allocation_state = learner.allocation.begin(
        learner.allocation_state, workspace, opening
    )
    positions = partial(learner.positions_on, past.general, "positions", ())
    return past, TaskStart(
        task,
        workspace.copied(),
        items=len(lesson.sequences),
        past_items=lesson.past_items,
        curvature=past.curvature,
        general=learner.config.sampling.general,
        positions=positions if past.general else None,
        text=partial(_text, learner, watch) if task == 1 else None,
    )


def ask_previous_model(
    learner: Learner, task: int, lesson: Lesson, watch: Stopwatch, progress: Progress
) -> Past:
    """Sample the previous model, take its curvature and states; for task 1 only general text."""
    sequences = lesson.sequences
    with watch.phase("sampling"):
        writes = task > 1 and learner.writes
        replay = _replay(learner, task, progress) if writes else lesson.stored
        general = []
        prior = learner.needs("prior_curvature")
        if learner.needs("curvature") or (task == 1 and (prior or learner.needs("positions"))):
            general = _general(learner, task)
    curvature = None
    samples = [*replay, *general] if learner.needs("curvature") else general
    if samples and (prior or learner.needs("curvature")):
        with watch.phase("curvature"):
            curvature = _finite(task, learner.curvature_on(samples, "curvature"))
    replay_states = current_states = None
    if task > 1:
        with watch.phase("teacher"):
            if replay and learner.replay is not None:
                replay_states = states_of(learner.backbone, replay)
            if learner.needs("teacher"):
                current_states = states_of(learner.backbone, sequences)
    return Past(replay, general, replay_states, current_states, curvature)


def _replay(learner: Learner, task: int, progress: Progress) -> Sequences:
    """Sample sequences from the previous model, which begin with the replay token."""
    config, backbone = learner.config, learner.backbone
    replay = replay_set(
        backbone,
        config.sampling,
        seed=config.seed,
        task=task,
        keep_stop=config.template.has_end,
        stops=learner.template.stops(backbone.tokenizer, backbone.stop_tokens),
    )
    if not replay:
        progress.event(f"task {task}: every replay sample was empty; learning it without replay")
    return replay


def _general(learner: Learner, task: int) -> Sequences:
    config = learner.config
    if not config.sampling.general:
        return []
    if task == 1:
        return first_general_text(learner, config.sampling.general)
    keep_stop = config.template.has_end
    return general_text(
        learner.backbone, config.sampling, seed=config.seed, task=task, keep_stop=keep_stop
    )


def _text(learner: Learner, watch: Stopwatch, count: int) -> Text:
    """Sample ``count`` general texts from the untouched model; return them with its states."""
    with watch.phase("sampling"):
        sequences = first_general_text(learner, count)
    refuse_no_text(sequences)
    with watch.phase("teacher"):
        return Text(sequences, states_of(learner.backbone, sequences))


def _task_curvature(learner: Learner, task: int, lesson: Lesson) -> dict[str, KroneckerFactors]:
    return _finite(task, learner.curvature_on(lesson.sequences, "own curvature", lesson.prompts))


def _finite(task: int, curvature: dict[str, KroneckerFactors]) -> dict[str, KroneckerFactors]:
    """Return ``curvature``; HoldfastError if it is not finite, so that no training follows."""
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
