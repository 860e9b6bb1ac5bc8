"""The objective of one minibatch: the fit term, which SI's path integral uses, and the rest.

Source: eq. app-objective.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.anchors.base import Anchor, State, Step
from holdfast.backbone.projection import TokenLogits, token_cross_entropy


@dataclass(frozen=True)
class Terms:
    """fit: the term whose gradient SI records; rest: weighted sum of the others, None if none.

    Their sum is the objective without the allocation rule's penalties.
    values: each term by name, unweighted and detached.
    """

    fit: Tensor
    rest: Tensor | None
    values: dict[str, Tensor]


@dataclass(frozen=True)
class Weights:
    """Weights in the objective of the current minibatch's tokens and of the replay minibatch.

    questions, answers, replay: coefficients; is_answer: [n] bool over the predicted tokens, None
    when answers have the weight of questions and the accuracy on them is not needed; answers_alone:
    whether the loss is the mean over answers, and questions have none.
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
    """Compose the current-task loss and the anchors.

    ``L_fit = (1 - w) L_SFT + w L_D`` with a replay minibatch, ``L_SFT`` without; the other anchors
    are added with their strengths. weights: may weight question and answer tokens differently
    within L_SFT. replay_counts_for_path: whether the path is ``L_fit`` or, under O-LoRA, only the
    weighted current-task loss.
    Source: eq. app-fit, eq. app-objective.
    """
    fit, values = _current(step, weights)
    others: list[Tensor] = []
    for name, anchor in anchors:
        loss = anchor.loss(states[name], step)
        values[name] = loss.detach()
        if not anchor.in_fit:
            others.append(anchor.strength(states[name]) * loss)
        elif step.replay is not None:
            weighted = weights.replay * loss
            if replay_counts_for_path:
                fit = fit + weighted
            else:
                others.append(weighted)
    differentiable = [term for term in others if term.requires_grad]
    rest = sum(differentiable[1:], differentiable[0]) if differentiable else None
    return Terms(fit, rest, values)


def _current(step: Step, weights: Weights) -> tuple[Tensor, dict[str, Tensor]]:
    """The weighted loss of the current minibatch; for the log, ``sft`` and answer accuracy."""
    if weights.is_answer is None:
        sft = step.current.mean(token_cross_entropy)
        weighted = sft if weights.questions == 1 else weights.questions * sft
        return weighted, {"sft": sft.detach()}
    losses: list[Tensor] = []
    given: list[Tensor] = []

    def loss(tokens: TokenLogits) -> Tensor:
        each = token_cross_entropy(tokens)
        losses.append(each.detach())
        given.append(tokens.student.detach().argmax(dim=1) == tokens.targets)
        return each

    if weights.answers_alone:
        weighted = weights.answers * step.current.mean(loss, step.current.only(weights.is_answer))
        measured = weights.is_answer
    else:
        chosen = step.zero().new_full(weights.is_answer.shape, weights.questions)
        chosen = chosen.masked_fill_(weights.is_answer, weights.answers)
        weighted, measured = step.current.mean(loss, chosen), None
    right = step.current.mean_of(torch.cat(given).to(weighted.dtype), weights.is_answer)
    sft = step.current.mean_of(torch.cat(losses), measured)
    return weighted, {"sft": sft, "acquired": right}
