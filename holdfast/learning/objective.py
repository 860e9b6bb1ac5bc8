"""The loss terms of a minibatch: weighted question and answer tokens, and the anchors' terms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from holdfast.anchors.base import Anchor, State, Step
from holdfast.anchors.objective import Terms, compose
from holdfast.backbone.projection import TokenLogits, token_cross_entropy


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
