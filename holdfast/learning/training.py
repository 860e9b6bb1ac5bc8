"""The optimisation of one task: a clipped AdamW step for each accumulation window.

Minibatches are drawn from named seeds, so all methods see the same order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, repeat
from typing import NamedTuple

import torch
from torch import Tensor

from holdfast.anchors.base import Change, Step, Tree, Update
from holdfast.backbone.sequences import BatchShard, TokenStates
from holdfast.core.errors import HoldfastError
from holdfast.core.processes import broadcast_
from holdfast.core.seeding import derive, generator
from holdfast.learning.config import Optimisation
from holdfast.learning.learner import Learner, Lesson, Part, Sequences
from holdfast.learning.objective import Weights, minibatch_terms
from holdfast.learning.progress import OptimiserStep, Progress
from holdfast.model.curvature import Curvature


class Minibatches(NamedTuple):
    """Indices of one pass's minibatches: the task's sequences, replay, general text; None: none."""

    current: list[int]
    replay: list[int] | None = None
    general: list[int] | None = None


@dataclass(frozen=True)
class Past:
    """Outputs of the previous model, computed before the student's first step.

    replay: sequences sampled from the replay token (with ``stored``: stored ones); general:
    sequences sampled from random tokens; both may be empty. replay_states, current_states: last
    hidden states on ``replay`` and on the task's own sequences; curvature: Kronecker factors on
    ``replay`` and ``general``; each is None if no anchor needs it.
    """

    replay: Sequences
    general: Sequences
    replay_states: TokenStates | None
    current_states: TokenStates | None
    curvature: Curvature | None


def optimise(
    learner: Learner,
    task: int,
    lesson: Lesson,
    past: Past,
    updates: Callable[[], dict[str, Update]],
    progress: Progress,
) -> list[dict[str, float]]:
    """Minimise eq. app-objective on one task; return the mean of each term in every epoch.

    updates: gives the change of every map since the task began; ``dict`` if no anchor needs it.
    With ``optim.acquired``, epochs beyond the least number follow until one reaches that accuracy
    on the task's answer tokens, up to ``optim.max_steps``; ``optim.cooldown`` epochs end the task.
    Raises HoldfastError, naming the epoch, when a term or the factors are not finite.
    Source: alg. weight-anchors, alg. replay.
    """
    settings = learner.config.optim
    count = len(lesson.sequences)
    least, most = settings.epochs_of(count), settings.most_epochs_of(count)
    in_epoch = settings.steps_in_epoch(count)
    parameters = learner.workspace.parameters()
    optimizer = TaskOptimizer(parameters.values(), settings, least * in_epoch)
    trainer = _TaskTrainer(learner, task, lesson, past, updates, optimizer)
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


def current_minibatches(seed: int, task: int, epoch: int, count: int, size: int) -> list[list[int]]:
    """Indices of the task's ``count`` sequences, shuffled for this epoch, in minibatches."""
    order = torch.randperm(count, generator=generator(seed, "order", task, epoch)).tolist()
    return [order[start : start + size] for start in range(0, count, size)]


def replay_minibatches(
    seed: int,
    task: int,
    epoch: int,
    count: int,
    size: int,
    at_once: int,
    purpose: str = "replay order",
) -> Iterator[list[int]]:
    """Yield the replay indices of each step, endlessly.

    The indices are reshuffled every epoch and whenever they are exhausted; the last minibatch of a
    shuffle may be short. at_once: minibatches per step; purpose: names the draws.
    Source: alg. replay.
    """

    def minibatches() -> Iterator[list[int]]:
        pass_number = 0
        while True:
            source = generator(seed, purpose, task, epoch, pass_number)
            order = torch.randperm(count, generator=source).tolist()
            yield from (order[start : start + size] for start in range(0, count, size))
            pass_number += 1

    endless = minibatches()
    while True:
        yield [index for _ in range(at_once) for index in next(endless)]


def _part(sequences: Sequences, states: TokenStates | None, minibatch: list[int]) -> Part:
    shard = BatchShard.of([len(sequences[index]) - 1 for index in minibatch])
    chosen = minibatch if shard is None else shard.of_minibatch(minibatch)
    teacher_states = None if states is None else states.rows(chosen)
    return Part([sequences[index] for index in chosen], teacher_states, shard)


def weights_of(learner: Learner, task: int, lesson: Lesson, past: Past) -> Weights:
    """The weights of a task's tokens and replay loss; for the first task 1 and 0.

    Source: eq. app-fit; ``balance`` is not from the paper.
    """
    alone = learner.learns_answers_alone
    if task == 1:
        return Weights(answers_alone=alone)
    balance = learner.config.balance
    replay = 0.0
    questions = balance.questions or 1.0
    if learner.replay is not None and past.replay_states is not None:
        questions = lesson.share if balance.share else 1 - learner.replay.weight
        replay = 1 - lesson.share if balance.share else learner.replay.weight
    elif balance.share:
        questions = min(questions, lesson.share)
    return Weights(questions, balance.answers or questions, replay, answers_alone=alone)


def warmup_steps(steps: int, fraction: float) -> int:
    """Warm-up steps among a task's ``steps``: ``max(1, floor(fraction * steps))``."""
    # The small term undoes rounding, so that 0.05 of 100 steps is 5 and never 4.
    return max(1, int(fraction * steps + 1e-9))


class TaskOptimizer:
    """A new AdamW on the factors; step k of the first W has rate ``lr * k / W``.

    rate: the latest step's. A cooldown is not from the paper.
    """

    def __init__(self, parameters: Iterable[Tensor], config: Optimisation, steps: int) -> None:
        """steps: of the least number of epochs; the warm-up is a fraction of them."""
        self._config = config
        self._warmup = warmup_steps(steps, config.warmup)
        self._taken = 0
        self._cooldown = self._left = 0
        self.rate = 0.0
        self._adamw = torch.optim.AdamW(
            list(parameters), lr=config.lr, weight_decay=config.weight_decay, fused=True
        )

    def cool_down(self, steps: int) -> None:
        """For the last ``steps`` steps, multiply the k-th's rate by ``1 - (k - 1) / steps``."""
        self._cooldown = self._left = steps

    def step(self) -> None:
        """Update the parameters by their ``grad``."""
        self._taken += 1
        self.rate = self._config.lr * min(1.0, self._taken / self._warmup)
        if self._cooldown:
            self.rate *= self._left / self._cooldown
            self._left -= 1
        for group in self._adamw.param_groups:
            group["lr"] = self.rate
        self._adamw.step()


class _TaskTrainer:
    """Takes one optimiser step for each accumulation window of a task."""

    def __init__(
        self,
        learner: Learner,
        task: int,
        lesson: Lesson,
        past: Past,
        updates: Callable[[], dict[str, Update]],
        optimizer: TaskOptimizer,
    ) -> None:
        self._learner = learner
        self._task = task
        self._sequences = lesson.sequences
        self._past = past
        self._general = learner.general()
        self._weights = weights_of(learner, task, lesson, past)
        settings = learner.config
        masked = (settings.balance.answers, settings.optim.acquired) != (None, None)
        masked = masked or self._weights.answers_alone
        self._is_answer = lesson.is_answer() if masked else None
        self._updates = updates
        self._optimizer = optimizer
        self.gradient_norm = torch.zeros(())  # of the latest step, before clipping
        self._drawn = 0  # minibatches so far; part of the dropout masks' seeds

    def minibatches(self, epoch: int) -> Iterator[Minibatches]:
        """Every current minibatch of an epoch, with its replay and general minibatches."""
        learner, past = self._learner, self._past
        seed, size = learner.config.seed, learner.config.optim.batch_size
        replay: Iterator[list[int] | None] = repeat(None)
        general: Iterator[list[int] | None] = repeat(None)
        if learner.replay is not None and past.replay_states is not None:
            at_once = learner.replay.minibatches_per_step
            replay = replay_minibatches(seed, self._task, epoch, len(past.replay), size, at_once)
        if self._general is not None:
            count, at_once = len(self._general.sequences), self._general.minibatches_per_step
            general = replay_minibatches(
                seed, self._task, epoch, count, size, at_once, "general order"
            )
        current = current_minibatches(seed, self._task, epoch, len(self._sequences), size)
        yield from map(Minibatches, current, replay, general)

    def optimiser_step(self, window: Sequence[Minibatches]) -> list[dict[str, Tensor]]:
        """Accumulate a window's gradient, clip it and step; return the terms of its minibatches."""
        workspace, rule = self._learner.workspace, self._learner.allocation
        state = self._learner.allocation_state
        values, whole, fit = [], _Sum(), _Sum()
        for minibatches in window:
            terms, fit_gradient, rest_gradient = self._gradients(minibatches)
            fit.add(fit_gradient, 1 / len(window))
            whole.add(fit_gradient, 1 / len(window))
            whole.add(rest_gradient, 1 / len(window))
            values.append(terms)
        penalty = rule.penalty(state, workspace)
        if penalty is not None and penalty.requires_grad:
            # Outside the accumulation: added once per step, undivided (app:olora).
            parameters = workspace.parameters()
            penalty_gradients: Sequence[Tensor | None] = torch.autograd.grad(
                penalty, list(parameters.values()), allow_unused=True
            )
            named = zip(parameters, penalty_gradients, strict=True)
            whole.add({name: gradient for name, gradient in named if gradient is not None}, 1)
        for name, parameter in workspace.parameters().items():
            parameter.grad = whole.tree[name]
        rule.adjust_gradient(state, workspace)
        self._update(fit.tree)
        return values

    def _gradients(self, chosen: Minibatches) -> tuple[dict[str, Tensor], Tree, Tree]:
        """The terms of ``chosen``, the gradient of the fit term, and the gradient of the others.

        If no anchor needs the fit gradient, the first gradient is of all terms, the second empty.
        """
        learner, past = self._learner, self._past
        seed = learner.config.seed
        self._drawn += 1
        parts = {"dropout": _part(self._sequences, past.current_states, chosen.current)}
        if chosen.replay is not None:
            parts["replay dropout"] = _part(past.replay, past.replay_states, chosen.replay)
        if chosen.general is not None and self._general is not None:
            text = self._general
            parts["general dropout"] = _part(text.sequences, text.states, chosen.general)
        masks = [derive(seed, purpose, self._task, self._drawn) for purpose in parts]
        with learner.backbone.learning(dropout=True):
            passed, projections = learner.project(*parts.values(), mask_seeds=masks)
            projected = dict(zip(parts, projections, strict=True))
            parameters = learner.workspace.parameters()
            terms = minibatch_terms(
                Step(
                    parameters,
                    projected["dropout"],
                    projected.get("replay dropout"),
                    self._updates(),
                    projected.get("general dropout"),
                ),
                learner.anchors,
                learner.states,
                self._weighing(chosen.current, parts["dropout"].shard),
                replay_counts_for_path=learner.allocation.replay_counts_for_path,
            )
            if terms.rest is None:
                return terms.values, passed.gradient(terms.fit), {}
            if not learner.needs("fit_gradient"):
                return terms.values, passed.gradient(terms.fit + terms.rest), {}
            fit_gradient = passed.gradient(terms.fit, again=True)
            return terms.values, fit_gradient, passed.gradient(terms.rest)

    def _weighing(self, minibatch: list[int], shard: BatchShard | None) -> Weights:
        if self._is_answer is None:
            return self._weights
        indices = minibatch if shard is None else shard.of_minibatch(minibatch)
        chosen = torch.cat([self._is_answer[index] for index in indices])
        device = self._learner.backbone.device
        return replace(self._weights, is_answer=chosen.to(device, non_blocking=True))

    def _update(self, fit_gradient: Tree) -> None:
        """Clip the complete gradient, step, and report the step to anchors if any needs it."""
        learner = self._learner
        parameters = learner.workspace.parameters()
        clip = learner.config.optim.clip
        self.gradient_norm = torch.nn.utils.clip_grad_norm_(parameters.values(), clip)
        if not learner.needs("fit_gradient"):
            self._optimizer.step()
            return
        before = learner.workspace.copied()
        self._optimizer.step()
        after = {name: parameter.detach() for name, parameter in parameters.items()}
        change = Change(fit_gradient, before, after)
        for name, anchor in learner.anchors:
            learner.states[name] = anchor.after_step(learner.states[name], change)


class _Sum:
    """A weighted sum of gradients. tree: the sum by coordinate."""

    def __init__(self) -> None:
        self.tree: dict[str, Tensor] = {}

    def add(self, gradient: Tree, weight: float) -> None:
        for name, tensor in gradient.items():
            total = self.tree.get(name)
            self.tree[name] = weight * tensor if total is None else total.add(tensor, alpha=weight)
