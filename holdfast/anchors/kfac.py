"""Curvature anchor: the past as one quadratic form in dense coordinates.

On given sequences the Fisher information of every adapted map is about ``S (x) G`` (see
:mod:`holdfast.model.kronecker`). So the divergence of the student from the model before the
task, per token, is to second order, without products of several maps,

    1/2 sum over maps of tr(G dW S dW^T),    dW = rho (B A - B_0 A_0).

The form is in dense matrices, so it is valid under every allocation rule. The sequences are each
task's own, when it has just been learned, or samples of the previous model.
Source: Martens & Grosse 2015; Ritter et al. 2018 (own sequences, after the recursion of Laplace's
approximation, the product of means for the mean of products); on samples of the previous
model it is Holdfast's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from holdfast.anchors.base import Anchor, Needs, State, Step, TaskEnd, TaskStart, Update
from holdfast.core import config as core_config
from holdfast.model.kronecker import (
    Curvature,
    KroneckerFactors,
    from_named,
    map_tensors,
    mix,
    named_tensors,
)


class KroneckerFisher(Anchor):
    """The quadratic form above.

    Its state. past: with ``source: own`` the means of S and G over all learned items; prior: the
    means over the general text that the unmodified model wrote; penalty: S and G of the form during
    a task. Each is absent until it exists. During a task also ratio: past items and general
    sequences over new items; items: the number learned before, at most max_items.
    """

    class Config(core_config.Config):
        """source: the sequences over which S and G are means.

        own: each task's own, when it has just been learned; every item counts once, and S and G
        are a state of constant size. written: samples of the previous model before each task; no
        state is kept between tasks.

        strength: of the term, which is a divergence per token. per_item: multiply it by the number
        of learned items and general sequences over the number of new items; strength is then the
        weight of one earlier item against one new item of as many tokens, as in Bayes' rule.
        max_items: the most learned items that count; beyond it the means are exponential averages,
        in which older items fade (general text does not).
        """

        source: Literal["own", "written"] = "own"
        strength: float = Field(4.0, ge=0)
        per_item: bool = True
        max_items: int | None = Field(None, ge=1)

    # A run reads these of the class: with either source, sequences begin with the replay token.
    needs = Needs(curvature=True, updates=True)

    def __init__(self, config: KroneckerFisher.Config) -> None:
        self.config = config
        if config.source == "own":
            self.needs = Needs(prior_curvature=True, updates=True)

    def strength(self, state: State) -> float:
        return super().strength(state) * float(state.get("ratio", 1.0))

    def begin(self, state: State, start: TaskStart) -> State:
        most = self.config.max_items
        items = start.past_items if most is None else min(start.past_items, most)
        prior = state.get("prior")
        if self.config.source == "written":
            penalty, general = start.curvature, start.general
        else:
            prior = start.curvature if start.task == 1 else prior
            # The unmodified model may have written only empty sequences.
            general = 0 if prior is None else start.general
            device = next(iter(start.parameters.values())).device
            penalty = _mean(prior, general, state.get("past"), items, device)
        ratio = (items + general) / start.items if self.config.per_item else 1.0
        curvatures = {"past": state.get("past"), "prior": prior, "penalty": penalty}
        count = torch.tensor([ratio, items], dtype=torch.float64)
        return {
            **{part: means for part, means in curvatures.items() if means is not None},
            "ratio": count[0],
            "items": count[1],
        }

    def loss(self, state: State, step: Step) -> Tensor:
        if "penalty" not in state:
            return step.zero()
        return quadratic_form(step.updates, state["penalty"])

    def end(self, state: State, end: TaskEnd) -> State:
        new = {part: state[part] for part in ("past", "prior") if part in state}
        if self.config.source == "own":
            device = next(iter(end.parameters.values())).device
            task, items = end.curvature(), int(state["items"])
            past = _mean(state.get("past"), items, task, end.sequences, device)
            if past is not None:
                new["past"] = past
        return new

    def pack(self, state: State) -> dict[str, Tensor]:
        named = {part: named_tensors(state[part]) for part in _CURVATURES if part in state}
        return super().pack({**state, **named})

    def unpack(self, tensors: Mapping[str, Tensor]) -> State:
        state = dict(super().unpack(tensors))
        if unknown := sorted(state.keys() - {*_CURVATURES, "ratio", "items"}):
            raise KeyError(f"{unknown[0]} is no part of a state of kfac")
        if state and self.config.source == "written" and "ratio" not in state:
            raise KeyError(f"a state of {sorted(tensors)} between tasks, where none is kept")
        return state | {part: from_named(state[part]) for part in _CURVATURES if part in state}


_CURVATURES = ("past", "prior", "penalty")


def _mean(
    first: Curvature | None,
    first_count: int,
    second: Curvature | None,
    second_count: int,
    device: torch.device,
) -> Curvature | None:
    """The mean of two curvatures, weighted by their counts of items, on ``device``."""
    if first is None or second is None:
        only = second if first is None else first
        return None if only is None else map_tensors(only, lambda part: part.to(device))
    return mix(first, second, first_count / (first_count + second_count), device)


def quadratic_form(updates: Mapping[str, Update], curvature: Curvature) -> Tensor:
    """``1/2 sum tr(G dW S dW^T)``, a scalar, differentiable in the factors of the updates."""
    factors = [
        part.to(torch.promote_types(part.dtype, torch.float32))
        for update in updates.values()
        for part in (update.lora_B, update.lora_A)
    ]
    scales = [update.scale for update in updates.values()]
    # B A and B_0 A_0 nearly cancel: half precision would lose the difference.
    with torch.autocast(factors[0].device.type, enabled=False):
        form: Tensor = _QuadraticForm.apply([curvature[name] for name in updates], scales, *factors)  # type: ignore[no-untyped-call]
    return form


class _QuadraticForm(torch.autograd.Function):
    """The form with its gradient: ``scale^2 G B (A S A^T)`` in ``B``, likewise in ``A``.

    With dW = scale B A the form is ``1/2 scale^2 sum((B^T G B) * (A S A^T))``: k x k products.
    """

    @staticmethod
    def forward(
        ctx: Any, curvature: Sequence[KroneckerFactors], scales: Sequence[float], *factors: Tensor
    ) -> Tensor:
        value = factors[0].new_zeros(())
        slopes = []
        pairs = zip(factors[::2], factors[1::2], strict=True)
        for fisher, scale, (lora_B, lora_A) in zip(curvature, scales, pairs, strict=True):
            GB = fisher.outputs.times(lora_B.t()).t()  # [d_out, k]
            AS = fisher.inputs.times(lora_A)  # [k, d_in]
            BGB, ASA = lora_B.t() @ GB, AS @ lora_A.t()  # [k, k]
            value += 0.5 * scale**2 * (BGB * ASA).sum()
            slopes += [GB @ (ASA * scale**2), (BGB * scale**2) @ AS]
        ctx.save_for_backward(*slopes)
        return value

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        return (None, None, *(slope * upstream[0] for slope in ctx.saved_tensors))
