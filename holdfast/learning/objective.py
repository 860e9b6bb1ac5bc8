"""The objective of one minibatch, in the two parts that Synaptic Intelligence tells apart.

Source: eq. app-objective.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from holdfast.anchors.base import Anchor, StepView
from holdfast.backbone.projection import token_cross_entropy


@dataclass(frozen=True)
class Terms:
    """path: what SI takes the gradient of; rest: the weighted other terms, None if there are none.

    Their sum is the objective but for the penalties of the allocation rule.
    values: each term, unweighted, detached, by name.
    """

    path: Tensor
    rest: Tensor | None
    values: dict[str, Tensor]


def minibatch_terms(
    view: StepView, anchors: Sequence[tuple[str, Anchor]], *, replay_counts_for_path: bool
) -> Terms:
    """Compose the current-task loss and the anchors.

    ``L_fit = (1 - w) L_SFT + w L_D`` while there is a replay minibatch, ``L_SFT`` otherwise; the
    other anchors are added with their strengths. replay_counts_for_path: whether the path is
    ``L_fit`` or, under O-LoRA, the weighted current-task loss alone.
    Source: eq. app-fit, eq. app-objective.
    """
    sft = view.current.mean(token_cross_entropy)
    values = {"sft": sft.detach()}
    path = sft
    others: list[Tensor] = []
    for name, anchor in anchors:
        loss = anchor.loss(view)
        values[name] = loss.detach()
        if not anchor.needs.replay:
            others.append(anchor.strength * loss)
        elif view.replay is not None:
            path = (1 - anchor.strength) * sft
            weighted = anchor.strength * loss
            if replay_counts_for_path:
                path = path + weighted
            else:
                others.append(weighted)
    differentiable = [term for term in others if term.requires_grad]
    rest = sum(differentiable[1:], differentiable[0]) if differentiable else None
    return Terms(path, rest, values)
