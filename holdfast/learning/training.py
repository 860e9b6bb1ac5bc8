"""The optimisation of one task: windows of minibatches, one clipped AdamW step each."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import torch
from torch import Tensor

from holdfast.anchors.base import StepChange, StepView, Update
from holdfast.backbone.adapters.workspace import Adapters
from holdfast.backbone.curvature import Curvature
from holdfast.backbone.sequences import TokenStates
from holdfast.core.errors import HoldfastError
from holdfast.core.seeding import derive
from holdfast.learning.config import Optimisation
from holdfast.learning.learner import Learner, Lesson, Part, Sequences
from holdfast.learning.minibatches import current_minibatches, replay_minibatches
from holdfast.learning.objective import Weights, minibatch_terms
from holdfast.learning.progress import Progress
from holdfast.learning.schedule import TaskOptimizer

Pair = tuple[list[int], list[int] | None]


@dataclass(frozen=True)
class Past:
    """What the previous model said, once, before the student's first step.

    replay: what it wrote from the replay token, and general: from random tokens of its vocabulary,
    empty when there is nothing; replay_states, current_states: its hidden states on the first of
    these and on the task's own sequences, None when no anchor asks; curvature: Kronecker factors
    on what it wrote, likewise.
    """

    replay: Sequences
    general: Sequences
    replay_states: TokenStates | None
    current_states: TokenStates | None
    curvature: Curvature | None


def optimise(
    learner: Learner, task: int, lesson: Lesson, past: Past, progress: Progress
) -> list[dict[str, float]]:
    """Minimise eq. app-objective on one task; return the mean of each term in every epoch.

    With ``optim.acquired`` it ends with the first epoch, after the least number of them, in which
    the task's own answers were given.
    Raises HoldfastError, naming the epoch, where a term or the factors are not finite.
    Source: alg. weight-anchors, alg. replay.
    """
    settings = learner.config.optim
    count = len(lesson.sequences)
    least, most = settings.epochs_of(count), settings.most_epochs_of(count)
    in_epoch = settings.steps_in_epoch(count)
    optimizer = TaskOptimizer(learner.adapters.parameters, settings, least * in_epoch)
    step = _Step(learner, task, lesson, past, optimizer)
    epochs: list[dict[str, float]] = []
    taken = 0
    while len(epochs) < least or (len(epochs) < most and not _acquired(settings, epochs[-1])):
        epoch = len(epochs)
        values: list[dict[str, Tensor]] = []
        for window in _windows(_pairs(learner, task, epoch, count, past), settings):
            values += step.take(window)
            taken += 1
            # Whether it will be acquired then is not known: least, then one epoch after another.
            progress.step("training", task, taken, max(least, epoch + 1) * in_epoch)
        means = {n: float(torch.stack([v[n] for v in values]).mean()) for n in values[0]}
        lost = [name for name, mean in means.items() if not math.isfinite(mean)]
        # The factors too: what the last step made of them, no term has seen.
        if not bool(learner.adapters.parameters.isfinite().all()):
            lost.append("the factors")
        _refuse_divergence(task, epoch, lost)
        epochs.append(means)
    return epochs


def _acquired(settings: Optimisation, epoch: Mapping[str, float]) -> bool:
    """Whether the task's own answers were given in an epoch; where nobody asks, they were."""
    return settings.acquired is None or epoch["acquired"] >= settings.acquired


def _refuse_divergence(task: int, epoch: int, lost: Sequence[str]) -> None:
    """HoldfastError where anything is no number: nothing that is learned from it is committed."""
    if lost:
        raise HoldfastError(
            f"task {task}, epoch {epoch + 1}: {', '.join(lost)} not finite, the task is not "
            "kept; lower optim.lr or the anchors' strengths, then run the same command again"
        )


def _pairs(learner: Learner, task: int, epoch: int, count: int, past: Past) -> Iterator[Pair]:
    """Every current minibatch of an epoch with its replay partner."""
    seed, size = learner.config.seed, learner.config.optim.batch_size
    current = current_minibatches(seed, task, epoch, count, size)
    if learner.replay is None or past.replay_states is None:
        yield from ((minibatch, None) for minibatch in current)
        return
    at_once = learner.replay.minibatches_per_step
    partners = replay_minibatches(seed, task, epoch, len(past.replay), size, at_once)
    yield from zip(current, partners, strict=False)


def _windows(pairs: Iterator[Pair], settings: Optimisation) -> Iterator[list[Pair]]:
    while window := list(islice(pairs, settings.accumulation)):
        yield window


def _part(sequences: Sequences, states: TokenStates | None, chosen: list[int]) -> Part:
    known = None if states is None else states.rows(chosen)
    return Part([sequences[index] for index in chosen], known)


def weights_of(learner: Learner, task: int, lesson: Lesson, past: Past) -> Weights:
    """What the tokens of a task weigh, by the data anchor and the balance; 1 in the first task.

    Source: eq. app-fit; the balance is Holdfast's own.
    """
    if task == 1:
        return Weights()
    balance = learner.config.balance
    replay = 0.0
    questions = balance.questions or 1.0
    if learner.replay is not None and past.replay_states is not None:
        questions = lesson.share if balance.share else 1 - learner.replay.weight
        replay = 1 - lesson.share if balance.share else learner.replay.weight
    elif balance.share:
        questions = min(questions, lesson.share)
    return Weights(questions, balance.answers or questions, replay)


def _answers(learner: Learner, lesson: Lesson) -> list[Tensor] | None:
    """Of every sequence, which of its predicted tokens answer, [n] bool; None if all are alike."""
    if learner.config.balance.answers is None and learner.config.optim.acquired is None:
        return None
    return [
        torch.arange(1, len(sequence)) >= prompt
        for sequence, prompt in zip(lesson.sequences, lesson.prompts, strict=True)
    ]


def updates_since(adapters: Adapters) -> Callable[[Tensor], dict[str, Update]]:
    """A function of the coordinates [P]: what every map has changed by since now."""
    start = adapters.branch()  # None where the model's function has no branch: B_0 = 0

    def updates(parameters: Tensor) -> dict[str, Update]:
        found = {}
        for name, (right, left) in adapters.split(parameters).items():
            if start is not None:
                right_before, left_before = start[name]
                left = torch.cat([left, -left_before], dim=1)
                right = torch.cat([right, right_before])
            found[name] = Update(left, right, adapters.scale)
        return found

    return updates


class _Step:
    """One optimiser step over an accumulation window."""

    def __init__(
        self,
        learner: Learner,
        task: int,
        lesson: Lesson,
        past: Past,
        optimizer: TaskOptimizer,
    ) -> None:
        self._learner = learner
        self._task = task
        self._sequences = lesson.sequences
        self._past = past
        self._weights = weights_of(learner, task, lesson, past)
        self._is_answer = _answers(learner, lesson)
        self._updates = updates_since(learner.adapters)
        self._optimizer = optimizer
        self._path = torch.zeros_like(learner.adapters.gradient) if learner.needs_path else None
        self._drawn = 0  # minibatches so far: names the dropout masks

    def take(self, window: Sequence[Pair]) -> list[dict[str, Tensor]]:
        """Accumulate the gradient of a window, clip it, update; return the terms' values."""
        adapters = self._learner.adapters
        adapters.gradient.zero_()
        if self._path is not None:
            self._path.zero_()
        values = [self._accumulate(*pair, 1 / len(window)) for pair in window]
        penalty = self._learner.allocation.penalty(adapters)
        if penalty is not None and penalty.requires_grad:
            # Outside the accumulation: once a step, not divided (app:olora).
            penalty.backward()
        if self._path is not None:
            adapters.gradient += self._path
        self._learner.allocation.adjust_gradient(adapters)
        self._update()
        return values

    def _accumulate(
        self, minibatch: list[int], partner: list[int] | None, share: float
    ) -> dict[str, Tensor]:
        """Add a minibatch's gradient; a window is the mean of its minibatches, a short one too."""
        learner, past = self._learner, self._past
        seed = learner.config.seed
        self._drawn += 1
        parts = [_part(self._sequences, past.current_states, minibatch)]
        purposes = ["dropout"]
        if partner is not None:
            parts.append(_part(past.replay, past.replay_states, partner))
            purposes.append("replay dropout")
        masks = [derive(seed, purpose, self._task, self._drawn) for purpose in purposes]
        with learner.backbone.learning(*masks):
            return self._pass(parts, minibatch, share)

    def _pass(self, parts: list[Part], minibatch: list[int], share: float) -> dict[str, Tensor]:
        """Forward, the terms, and backward, within one mode of the model."""
        learner = self._learner
        passed, (current, *replay) = learner.project(*parts)
        parameters = learner.adapters.parameters
        updates = self._updates(parameters) if learner.needs_updates else {}
        view = StepView(parameters, current, replay[0] if replay else None, updates)
        terms = minibatch_terms(
            view,
            learner.anchors,
            self._weighing(minibatch),
            replay_counts_for_path=learner.allocation.replay_counts_for_path,
        )
        gradient = learner.adapters.gradient
        if self._path is None:
            whole = terms.path if terms.rest is None else terms.path + terms.rest
            passed.backward((share * whole, gradient))
        elif terms.rest is None:
            passed.backward((share * terms.path, self._path))
        else:
            passed.backward((share * terms.path, self._path), (share * terms.rest, gradient))
        return terms.values

    def _weighing(self, minibatch: list[int]) -> Weights:
        if self._is_answer is None:
            return self._weights
        chosen = torch.cat([self._is_answer[index] for index in minibatch])
        device = self._learner.backbone.device
        return replace(self._weights, is_answer=chosen.to(device, non_blocking=True))

    def _update(self) -> None:
        """Clip the complete gradient, step, and show the anchors what changed."""
        learner = self._learner
        parameters = learner.adapters.parameters
        torch.nn.utils.clip_grad_norm_([parameters], learner.config.optim.clip)
        if self._path is None:
            self._optimizer.step()
            return
        before = parameters.detach().clone()
        self._optimizer.step()
        change = StepChange(self._path, before, parameters.detach())
        for _, anchor in learner.anchors:
            anchor.after_step(change)
