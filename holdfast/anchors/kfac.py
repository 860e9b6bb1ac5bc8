"""Curvature anchor: the past as one quadratic form in dense coordinates.

On any sequences the Fisher information of every adapted map is nearly ``S (x) G`` (see
:mod:`holdfast.backbone.curvature`), so that the divergence of the student from the model before
the task, per token, is to second order

    1/2 sum over maps of tr(G dW S dW^T),    dW = rho (B A - B_0 A_0).

As it speaks of dense matrices it holds whatever the allocation rule did with the factors before.
The sequences are each task's own, when it has just been learned, or what the previous model writes.
Source: Martens & Grosse 2015; Ritter et al. 2018 (own sequences, the recursion of Laplace's
approximation); on what the previous model writes it is Holdfast's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from holdfast.anchors.base import (
    Anchor,
    Needs,
    StepChange,
    StepView,
    TaskEnd,
    TaskStart,
    Update,
    check_names,
)
from holdfast.backbone.curvature import (
    Curvature,
    KroneckerFactors,
    from_named,
    mixed,
    named,
)
from holdfast.core.config import Config


class KroneckerFisher(Anchor):
    """The quadratic form above.

    past: with ``source: own`` the means of S and G over all that was learned, and over the general
    text that the untouched model wrote, if any; None otherwise.
    """

    class Config(Config):
        """source: whose sequences S and G are means over.

        own: those of each task, taken when it has just been learned; every item counts once, and S
        and G are a state of constant size. written: those that the previous model writes before
        each task; nothing is kept between tasks.

        strength: of the term; at 1 it is the divergence itself, per token. per_item: multiply it by
        how many items were learned before, and sequences of general text, for one of the new task:
        it is then what one of them weighs against one new item, as in Bayes' rule.
        """

        source: Literal["own", "written"] = "own"
        strength: float = Field(4.0, ge=0)
        per_item: bool = True

    needs = Needs(curvature=True, updates=True)

    def __init__(self, config: KroneckerFisher.Config) -> None:
        self.config = config
        if config.source == "own":
            self.needs = Needs(updates=True)
        self.past: Curvature | None = None
        self._used: Curvature | None = None  # in the task that is being learned
        self._items = 0  # learned before it, and sequences of general text
        self._ratio = 1.0

    @property
    def strength(self) -> float:
        return self.config.strength * self._ratio

    def begin(self, start: TaskStart) -> None:
        self._items = start.past_items + start.general
        self._ratio = self._items / start.items if self.config.per_item else 1.0
        if self.config.source == "written":
            self._used = start.curvature
            return
        if start.task == 1:
            self.past = start.curvature
        self._used = self.past

    def loss(self, step: StepView) -> Tensor:
        if self._used is None:
            return step.parameters.new_zeros(())
        return quadratic_form(step.updates, self._used)

    def after_step(self, change: StepChange) -> None:
        """Nothing to record."""

    def end(self, end: TaskEnd) -> None:
        self._used = None
        if self.config.source == "own":
            now = end.curvature()
            share = self._items / (self._items + end.sequences)
            self.past = now if self.past is None else mixed(self.past, now, share)

    def state(self) -> dict[str, Tensor]:
        return {} if self.past is None else named(self.past)

    def load(self, state: Mapping[str, Tensor]) -> None:
        if self.config.source == "written":
            check_names(state)
        self.past = from_named(state) if state else None


def quadratic_form(updates: Mapping[str, Update], curvature: Curvature) -> Tensor:
    """``1/2 sum tr(G dW S dW^T)``, a scalar, differentiable in the factors of the updates."""
    factors = [part for update in updates.values() for part in (update.left, update.right)]
    scales = [update.scale for update in updates.values()]
    form: Tensor = _QuadraticForm.apply([curvature[name] for name in updates], scales, *factors)  # type: ignore[no-untyped-call]
    return form


class _QuadraticForm(torch.autograd.Function):
    """Its gradient comes with its value: in ``L`` it is ``G L (R S R^T)``, in ``R`` alike.

    With dW = scale L R the form is ``1/2 scale^2 sum((L^T G L) * (R S R^T))``: k x k products.
    """

    @staticmethod
    def forward(
        ctx: Any, curvature: Sequence[KroneckerFactors], scales: Sequence[float], *factors: Tensor
    ) -> Tensor:
        value = factors[0].new_zeros(())
        slopes = []
        pairs = zip(factors[::2], factors[1::2], strict=True)
        for known, scale, (left, right) in zip(curvature, scales, pairs, strict=True):
            curved_left = known.outputs.times(left.t()).t()  # G L, [d_out, k]
            curved_right = known.inputs.times(right)  # R S, [k, d_in]
            lefts, rights = left.t() @ curved_left, curved_right @ right.t()  # [k, k]
            value += 0.5 * scale**2 * (lefts * rights).sum()
            slopes += [curved_left @ (rights * scale**2), (lefts * scale**2) @ curved_right]
        ctx.save_for_backward(*slopes)
        return value

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        return (None, None, *(slope * upstream[0] for slope in ctx.saved_tensors))
