"""The objective of one minibatch: the fit term, whose gradient SI records, and the rest.

Source: eq. app-fit, eq. app-objective.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from torch import Tensor

from holdfast.anchors.base import Anchor, State, Step


@dataclass(frozen=True)
class Terms:
    """fit: the term whose gradient SI records; rest: the weighted sum of all others, or None.

    Their sum is the objective without the allocation rule's penalties.
    values: each term by name, unweighted and detached.
    """

    fit: Tensor
    rest: Tensor | None
    values: dict[str, Tensor]


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
