"""The optimisation of one task: a clipped AdamW step for each accumulation window."""

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
from holdfast.backbone.sequences import Share, TokenStates
from holdfast.core.errors import HoldfastError
from holdfast.core.processes import same
from holdfast.core.seeding import derive
from holdfast.learning.config import Optimisation
from holdfast.learning.learner import Learner, Lesson, Part, Sequences
from holdfast.learning.minibatches import current_minibatches, replay_minibatches
from holdfast.learning.objective import Weights, minibatch_terms
from holdfast.learning.progress import OptimiserStep, Progress
from holdfast.learning.schedule import TaskOptimizer

Pair = tuple[list[int], list[int] | None]


@dataclass(frozen=True)
class Past:
    """Outputs of the previous model, computed before the student's first step.

    replay, general: sequences sampled from the replay token and from random tokens, may be empty;
    replay_states, current_states: its hidden states on ``replay`` and on the task's own sequences;
    curvature: Kronecker factors on ``replay`` and ``general``. These are None when no anchor needs
    them.
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

    With ``optim.acquired`` training ends once the least number of epochs is done and the latest
    epoch reached that accuracy on the task's answer tokens.
    Raises HoldfastError, naming the epoch, when a term or the factors are not finite.
    Source: alg. weight-anchors, alg. replay.
    """
    settings = learner.config.optim
    count = len(lesson.sequences)
    least, most = settings.epochs_of(count), settings.most_epochs_of(count)
    in_epoch = settings.steps_in_epoch(count)
    optimizer = TaskOptimizer(
        learner.adapters.parameters,
        settings,
        least * in_epoch,
        offload=learner.config.backbone.offload,
    )
    step = _Step(learner, task, lesson, past, optimizer)
    epochs: list[dict[str, float]] = []
    taken = 0
    while len(epochs) < least or (len(epochs) < most and not _acquired(settings, epochs[-1])):
        epoch = len(epochs)
        values: list[dict[str, Tensor]] = []
        for window in _windows(_pairs(learner, task, epoch, count, past), settings):
            terms = step.take(window)
            values += terms
            taken += 1
            progress.optimised(
                OptimiserStep(task, taken, terms, optimizer.rate, step.gradient_norm)
            )
            # The total is not known with ``acquired``: show the least, then one more epoch each.
            progress.step("training", task, taken, max(least, epoch + 1) * in_epoch)
        means = {n: float(torch.stack([v[n] for v in values]).mean()) for n in values[0]}
        # Rounding of unlike machines must not add up: the processes go on from the same factors.
        same(learner.adapters.parameters.data)
        lost = [name for name, mean in means.items() if not math.isfinite(mean)]
        # Check the factors too: no term was computed after the last step.
        if not bool(learner.adapters.parameters.isfinite().all()):
            lost.append("the factors")
        _refuse_divergence(task, epoch, lost)
        epochs.append(means)
    return epochs


def _acquired(settings: Optimisation, epoch: Mapping[str, float]) -> bool:
    """Whether an epoch reached ``settings.acquired``; True when that is None."""
    return settings.acquired is None or epoch["acquired"] >= settings.acquired


def _refuse_divergence(task: int, epoch: int, lost: Sequence[str]) -> None:
    """Raise HoldfastError if ``lost``, the names of non-finite values, is not empty."""
    if lost:
        raise HoldfastError(
            f"task {task}, epoch {epoch + 1}: {', '.join(lost)} not finite, the task is not "
            "kept; lower optim.lr or the anchors' strengths, then run the same command again"
        )


def _pairs(learner: Learner, task: int, epoch: int, count: int, past: Past) -> Iterator[Pair]:
    """Every current minibatch of an epoch with its replay indices, None without replay."""
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


def _part(sequences: Sequences, states: TokenStates | None, minibatch: list[int]) -> Part:
    share = Share.of([len(sequences[index]) - 1 for index in minibatch])
    chosen = minibatch if share is None else share.of_minibatch(minibatch)
    known = None if states is None else states.rows(chosen)
    return Part([sequences[index] for index in chosen], known, share)


def weights_of(learner: Learner, task: int, lesson: Lesson, past: Past) -> Weights:
    """Token weights of a task, from the data anchor and ``balance``; all 1 in the first task.

    Source: eq. app-fit; ``balance`` is not from the paper.
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
    """For each sequence, which predicted tokens are its answer, [n] bool; None if not needed."""
    if learner.config.balance.answers is None and learner.config.optim.acquired is None:
        return None
    return [
        torch.arange(1, len(sequence)) >= prompt
        for sequence, prompt in zip(lesson.sequences, lesson.prompts, strict=True)
    ]


def updates_since(adapters: Adapters) -> Callable[[Tensor], dict[str, Update]]:
    """A function of the coordinates [P] that returns each map's change since this call."""
    start = adapters.branch()  # None when the branch is zero: B_0 = 0

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
    """Takes one optimiser step for each accumulation window of a task."""

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
        self.gradient_norm = torch.zeros(())  # of the latest step, before clipping
        self._drawn = 0  # minibatches so far; part of the dropout masks' seeds

    def take(self, window: Sequence[Pair]) -> list[dict[str, Tensor]]:
        """Accumulate the gradient of a window, clip it, update; return the terms' values."""
        adapters = self._learner.adapters
        adapters.gradient.zero_()
        if self._path is not None:
            self._path.zero_()
        values = [self._accumulate(*pair, 1 / len(window)) for pair in window]
        penalty = self._learner.allocation.penalty(adapters)
        if penalty is not None and penalty.requires_grad:
            # Outside the accumulation: added once per step, undivided (app:olora).
            penalty.backward()
        if self._path is not None:
            adapters.gradient += self._path
        self._learner.allocation.adjust_gradient(adapters)
        self._update()
        return values

    def _accumulate(
        self, minibatch: list[int], partner: list[int] | None, share: float
    ) -> dict[str, Tensor]:
        """Add ``share`` times a minibatch's gradient; share: 1 / minibatches in the window."""
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
        """Forward, the terms, and backward; call within ``Backbone.learning``."""
        learner = self._learner
        passed, (current, *replay) = learner.project(*parts)
        parameters = learner.adapters.parameters
        updates = self._updates(parameters) if learner.needs_updates else {}
        view = StepView(parameters, current, replay[0] if replay else None, updates)
        terms = minibatch_terms(
            view,
            learner.anchors,
            self._weighing(minibatch, parts[0].share),
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

    def _weighing(self, minibatch: list[int], share: Share | None) -> Weights:
        if self._is_answer is None:
            return self._weights
        own = minibatch if share is None else share.of_minibatch(minibatch)
        chosen = torch.cat([self._is_answer[index] for index in own])
        device = self._learner.backbone.device
        return replace(self._weights, is_answer=chosen.to(device, non_blocking=True))

    def _update(self) -> None:
        """Clip the complete gradient, step, and report the step to anchors if any needs it."""
        learner = self._learner
        parameters = learner.adapters.parameters
        clip = learner.config.optim.clip
        self.gradient_norm = torch.nn.utils.clip_grad_norm_([parameters], clip)
        if self._path is None:
            self._optimizer.step()
            return
        before = parameters.detach().clone()
        self._optimizer.step()
        change = StepChange(self._path, before, parameters.detach())
        for _, anchor in learner.anchors:
            anchor.after_step(change)
