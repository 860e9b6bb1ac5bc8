"""The optimisation of one task: windows of minibatches, one clipped AdamW step each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor

from holdfast.anchors.base import StepChange, StepView
from holdfast.backbone.sequences import TokenStates
from holdfast.core.errors import HoldfastError
from holdfast.core.seeding import derive
from holdfast.learning.config import Optimisation
from holdfast.learning.learner import Learner, Part, Sequences
from holdfast.learning.minibatches import current_minibatches, replay_minibatches
from holdfast.learning.objective import minibatch_terms
from holdfast.learning.progress import Progress
from holdfast.learning.schedule import TaskOptimizer

Pair = tuple[list[int], list[int] | None]


@dataclass(frozen=True)
class Past:
    """What the previous model said, once, before the student's first step.

    replay: the replay set, empty when there is none; replay_states, current_states: its hidden
    states on these and on the task's own sequences, None when no anchor asks.
    """

    replay: Sequences
    replay_states: TokenStates | None
    current_states: TokenStates | None


NO_PAST = Past([], None, None)


def optimise(
    learner: Learner, task: int, sequences: Sequences, past: Past, progress: Progress
) -> list[dict[str, float]]:
    """Minimise eq. app-objective on one task; return the mean of each term in every epoch.

    Raises HoldfastError, naming the epoch, where a term or the factors are not finite.
    Source: alg. weight-anchors, alg. replay.
    """
    settings = learner.config.optim
    rounds = settings.epochs_of(len(sequences))
    steps = rounds * settings.steps_in_epoch(len(sequences))
    optimizer = TaskOptimizer(learner.adapters.parameters, settings, steps)
    step = _Step(learner, task, sequences, past, optimizer)
    epochs = []
    taken = 0
    for epoch in range(rounds):
        values: list[dict[str, Tensor]] = []
        for window in _windows(_pairs(learner, task, epoch, len(sequences), past), settings):
            values += step.take(window)
            taken += 1
            progress.step("training", task, taken, steps)
        means = {n: float(torch.stack([v[n] for v in values]).mean()) for n in values[0]}
        lost = [name for name, mean in means.items() if not math.isfinite(mean)]
        # The factors too: what the last step made of them, no term has seen.
        if not bool(learner.adapters.parameters.isfinite().all()):
            lost.append("the factors")
        _refuse_divergence(task, epoch, lost)
        epochs.append(means)
    return epochs


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
    if learner.replay is None or not past.replay:
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


class _Step:
    """One optimiser step over an accumulation window."""

    def __init__(
        self,
        learner: Learner,
        task: int,
        sequences: Sequences,
        past: Past,
        optimizer: TaskOptimizer,
    ) -> None:
        self._learner = learner
        self._task = task
        self._sequences = sequences
        self._past = past
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
        learner.adapters.training(*masks)
        passed, (current, *replay) = learner.project(*parts)
        view = StepView(learner.adapters.parameters, current, replay[0] if replay else None)
        terms = minibatch_terms(
            view,
            learner.anchors,
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
