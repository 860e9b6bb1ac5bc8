"""What happens to a task's minibatches: their order, their objective, and a clipped AdamW step.

They are drawn from named seeds, so all methods see the same order.
Source: eq. app-fit, eq. app-objective, alg. weight-anchors, alg. replay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from holdfast.anchors.base import Anchor, Change, State, Step, Tree, Update
from holdfast.core.seeding import derive, generator
from holdfast.learning.config import Optimisation
from holdfast.learning.learner import Learner, Sequences, TaskData
from holdfast.learning.teacher import Past
from holdfast.model.projection import TokenLogits, token_cross_entropy
from holdfast.model.sequences import Batch, BatchShard, TokenStates, collate


class Source(NamedTuple):
    """What minibatches are drawn from; at_once: of them in a step; states: the teacher's on it."""

    sequences: Sequences
    states: TokenStates | None
    at_once: int = 1


# The names of the draws of dropout masks.
_MASKS = {"current": "dropout", "replay": "replay dropout", "general": "general dropout"}


@dataclass(frozen=True)
class Weights:
    """Coefficients of the current minibatch's question and answer tokens and of the replay loss.

    answers_alone: whether the current loss is the mean over answer tokens only.
    """

    questions: float = 1.0
    answers: float = 1.0
    replay: float = 0.0
    answers_alone: bool = False


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


def weights_of(learner: Learner, task: int, data: TaskData, past: Past) -> Weights:
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
        questions = data.fraction if balance.share else 1 - learner.replay.weight
        replay = 1 - data.fraction if balance.share else learner.replay.weight
    elif balance.share:
        questions = min(questions, data.fraction)
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


class TaskTrainer:
    """Takes one optimiser step for each accumulation window of a task."""

    def __init__(
        self,
        learner: Learner,
        task: int,
        data: TaskData,
        past: Past,
        updates: Callable[[], dict[str, Update]],
        optimizer: TaskOptimizer,
    ) -> None:
        self._learner = learner
        self._task = task
        self._sources = {"current": Source(data.sequences, past.current_states)}
        if learner.replay is not None and past.replay_states is not None:
            at_once = learner.replay.minibatches_per_step
            self._sources["replay"] = Source(past.replay, past.replay_states, at_once)
        if (text := learner.general()) is not None:
            self._sources["general"] = Source(
                text.sequences, text.states, text.minibatches_per_step
            )
        self._weights = weights_of(learner, task, data, past)
        settings = learner.config
        masked = (settings.balance.answers, settings.optim.acquired) != (None, None)
        masked = masked or self._weights.answers_alone
        self._is_answer = data.is_answer() if masked else None
        self._updates = updates
        self._optimizer = optimizer
        self._steps_are_seen = learner.needs("fit_gradient")
        self.gradient_norm = torch.zeros(())  # of the latest step, before clipping
        self._drawn = 0  # minibatches so far; part of the dropout masks' seeds

    def minibatches(self, epoch: int) -> Iterator[dict[str, list[int]]]:
        """The indices of every current minibatch of an epoch, and of what is beside it, by source.

        Source: alg. replay.
        """
        config = self._learner.config
        orders: list[Iterable[list[int]]] = []
        for name, source in self._sources.items():
            drawn = config.seed, self._task, epoch, len(source.sequences), config.optim.batch_size
            if name == "current":
                orders.append(current_minibatches(*drawn))
            else:
                orders.append(replay_minibatches(*drawn, source.at_once, f"{name} order"))
        for indices in zip(*orders, strict=False):  # only the first ends
            yield dict(zip(self._sources, indices, strict=True))

    def optimiser_step(self, window: Sequence[dict[str, list[int]]]) -> list[dict[str, Tensor]]:
        """Accumulate a window's gradient, clip it and step; return the terms of its minibatches.

        If an anchor needs it, each is told of the step.
        """
        learner, workspace = self._learner, self._learner.workspace
        rule, rule_state = learner.allocation, learner.allocation_state
        parameters = workspace.parameters()
        values: list[dict[str, Tensor]] = []
        whole: dict[str, Tensor] = {}
        fit: dict[str, Tensor] = {}
        for minibatches in window:
            terms, fit_gradient, rest_gradient = self._gradients(minibatches)
            _add(fit, fit_gradient, 1 / len(window))
            _add(whole, fit_gradient, 1 / len(window))
            _add(whole, rest_gradient, 1 / len(window))
            values.append(terms)
        penalty = rule.penalty(rule_state, workspace)
        if penalty is not None and penalty.requires_grad:
            # Outside the accumulation: added once per step, undivided (app:olora).
            gradients: Sequence[Tensor | None] = torch.autograd.grad(
                penalty, list(parameters.values()), allow_unused=True
            )
            named = zip(parameters, gradients, strict=True)
            _add(whole, {name: gradient for name, gradient in named if gradient is not None}, 1)
        for name, parameter in parameters.items():
            parameter.grad = whole[name]
        rule.adjust_gradient(rule_state, workspace)
        clip = learner.config.optim.clip
        self.gradient_norm = torch.nn.utils.clip_grad_norm_(parameters.values(), clip)
        before = workspace.copied() if self._steps_are_seen else {}
        self._optimizer.step()
        if self._steps_are_seen:
            after = {name: parameter.detach() for name, parameter in parameters.items()}
            for name, anchor in learner.anchors:
                change = Change(fit, before, after)
                learner.states[name] = anchor.after_step(learner.states[name], change)
        return values

    def _gradients(self, minibatches: dict[str, list[int]]) -> tuple[dict[str, Tensor], Tree, Tree]:
        """The terms of a minibatch, the gradient of the fit term, and the gradient of the others.

        If no anchor needs the fit gradient, the first gradient is of all terms, the second empty.
        """
        learner, backbone = self._learner, self._learner.backbone
        self._drawn += 1
        batches = {
            name: self._batch(self._sources[name], indices) for name, indices in minibatches.items()
        }
        seeds = [
            derive(learner.config.seed, _MASKS[name], self._task, self._drawn) for name in batches
        ]
        with backbone.learning(dropout=True):
            passed = backbone.forward_pass(*batches.values(), mask_seeds=seeds)
            read = dict(zip(batches, passed.projections, strict=True))
            step = Step(
                learner.workspace.parameters(),
                read["current"],
                read.get("replay"),
                self._updates(),
                read.get("general"),
            )
            is_answer = self._answer_tokens(minibatches["current"], batches["current"].shard)
            loss, measured = current_loss(step, self._weights, is_answer)
            fit, rest, terms = compose(
                loss,
                step,
                learner.anchors,
                learner.states,
                replay_weight=self._weights.replay,
                replay_counts_for_path=learner.allocation.replay_counts_for_path,
            )
            values = measured | terms
            if rest is None:
                return values, passed.gradient(fit), {}
            if not self._steps_are_seen:
                return values, passed.gradient(fit + rest), {}
            fit_gradient = passed.gradient(fit, again=True)
            return values, fit_gradient, passed.gradient(rest)

    def _batch(self, source: Source, indices: list[int]) -> Batch:
        """What this process computes of a minibatch, with the teacher's states on it."""
        sequences, device = source.sequences, self._learner.backbone.device
        shard = BatchShard.of([len(sequences[index]) - 1 for index in indices])
        indices = indices if shard is None else shard.of_minibatch(indices)
        states = None if source.states is None else source.states.rows(indices)
        return collate([sequences[index] for index in indices], device, shard, states)

    def _answer_tokens(self, minibatch: list[int], shard: BatchShard | None) -> Tensor | None:
        """Which predicted tokens of a minibatch are the answers'; None if that does not matter."""
        if self._is_answer is None:
            return None
        indices = minibatch if shard is None else shard.of_minibatch(minibatch)
        chosen = torch.cat([self._is_answer[index] for index in indices])
        return chosen.to(self._learner.backbone.device, non_blocking=True)


def compose(
    loss: Tensor,
    step: Step,
    anchors: Iterable[tuple[str, Anchor]],
    states: Mapping[str, State],
    *,
    replay_weight: float,
    replay_counts_for_path: bool,
) -> tuple[Tensor, Tensor | None, dict[str, Tensor]]:
    """Add the anchors' terms to the loss of the current minibatch.

    loss: ``(1 - w) L_SFT`` if the step has a replay minibatch, otherwise ``L_SFT``; replay_weight:
    w, of L_D; the other terms have their anchors' strengths. replay_counts_for_path: whether the
    fit term is ``L_fit`` or, under O-LoRA, ``loss`` alone.

    Returns the fit term, whose gradient SI records; the weighted sum of all others, None if there
    is none; and each term by name, unweighted and detached. The allocation rule's penalties are not
    in them.
    """
    fit, others, values = loss, [], {}
    for name, anchor in anchors:
        term = anchor.loss(states[name], step)
        values[name] = term.detach()
        if not anchor.in_fit:
            others.append(anchor.strength(states[name]) * term)
        elif step.replay is not None:
            weighted = replay_weight * term
            if replay_counts_for_path:
                fit = fit + weighted
            else:
                others.append(weighted)
    differentiable = [term for term in others if term.requires_grad]
    rest = sum(differentiable[1:], differentiable[0]) if differentiable else None
    return fit, rest, values


def current_loss(
    step: Step, weights: Weights, is_answer: Tensor | None = None
) -> tuple[Tensor, dict[str, Tensor]]:
    """The weighted loss of the current minibatch, and the log's ``sft`` and answer accuracy.

    is_answer: [n] bool over the predicted tokens; None if questions weigh what answers do.
    """
    if is_answer is None:
        sft = step.current.mean(token_cross_entropy)
        weighted = sft if weights.questions == 1 else weights.questions * sft
        return weighted, {"sft": sft.detach()}
    losses: list[Tensor] = []
    hits: list[Tensor] = []

    def loss(tokens: TokenLogits) -> Tensor:
        each = token_cross_entropy(tokens)
        losses.append(each.detach())
        hits.append(tokens.student.detach().argmax(dim=1) == tokens.targets)
        return each

    if weights.answers_alone:
        weighted = weights.answers * step.current.mean(loss, step.current.only(is_answer))
        measured = is_answer
    else:
        chosen = step.zero().new_full(is_answer.shape, weights.questions)
        chosen = chosen.masked_fill_(is_answer, weights.answers)
        weighted, measured = step.current.mean(loss, chosen), None
    accuracy = step.current.mean_of(torch.cat(hits).to(weighted.dtype), is_answer)
    sft = step.current.mean_of(torch.cat(losses), measured)
    return weighted, {"sft": sft, "acquired": accuracy}


def _add(total: dict[str, Tensor], gradient: Tree, weight: float) -> None:
    for name, tensor in gradient.items():
        if name in total:
            total[name] = total[name].add(tensor, alpha=weight)
        else:
            total[name] = weight * tensor
