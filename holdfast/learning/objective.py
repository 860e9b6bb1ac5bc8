"""The objective of one minibatch: the fit term, whose gradient SI records, and the rest.

Source: eq. app-fit, eq. app-objective.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from holdfast.anchors.base import Anchor, State, Step
from holdfast.backbone.projection import TokenLogits, token_cross_entropy


@dataclass(frozen=True)
class Terms:
    """fit: the term whose gradient SI records; rest: the weighted sum of all others, or None.

    Their sum is the objective without the allocation rule's penalties.
    values: each term by name, unweighted and detached.
    """

    fit: Tensor
    rest: Tensor | None
    values: dict[str, Tensor]


@dataclass(frozen=True)
class Weights:
    """Weights of the current minibatch's tokens and of the replay loss.

    questions, answers, replay: coefficients; is_answer: [n] bool over the predicted tokens, None
    if questions and answers need not be told apart; answers_alone: whether the loss is the mean
    over answer tokens only.
    """

    questions: float = 1.0
    answers: float = 1.0
    replay: float = 0.0
    is_answer: Tensor | None = None
    answers_alone: bool = False


def minibatch_terms(
    step: Step,
    anchors: Sequence[tuple[str, Anchor]],
    states: Mapping[str, State],
    weights: Weights,
    *,
    replay_counts_for_path: bool,
) -> Terms:
    """Compute the weighted loss of the current minibatch and the terms of the anchors."""
    loss, measured = _current(step, weights)
    terms = compose(
        loss,
        step,
        anchors,
        states,
        replay_weight=weights.replay,
        replay_counts_for_path=replay_counts_for_path,
    )
    return replace(terms, values=measured | terms.values)


def compose(
    loss: Tensor,
    step: Step,
    anchors: Iterable[tuple[str, Anchor]],
    states: Mapping[str, State],
    *,
    replay_weight: float,
    replay_counts_for_path: bool,
) -> Terms:
    """Add the anchors' terms to the loss of the current minibatch.

    loss: ``(1 - w) L_SFT`` if the step has a replay minibatch, otherwise ``L_SFT``; replay_weight:
    w, of L_D; the other terms have their anchors' strengths.
    replay_counts_for_path: whether the fit term is ``L_fit`` or, under O-LoRA, ``loss`` alone.
    Source: eq. app-fit, eq. app-objective.
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
    return Terms(fit, rest, values)


def _current(step: Step, weights: Weights) -> tuple[Tensor, dict[str, Tensor]]:
    """The weighted loss of the current minibatch, and the log's ``sft`` and answer accuracy."""
    if weights.is_answer is None:
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
        weighted = weights.answers * step.current.mean(loss, step.current.only(weights.is_answer))
        measured = weights.is_answer
    else:
        chosen = step.zero().new_full(weights.is_answer.shape, weights.questions)
        chosen = chosen.masked_fill_(weights.is_answer, weights.answers)
        weighted, measured = step.current.mean(loss, chosen), None
    accuracy = step.current.mean_of(torch.cat(hits).to(weighted.dtype), weights.is_answer)
    sft = step.current.mean_of(torch.cat(losses), measured)
    return weighted, {"sft": sft, "acquired": accuracy}
