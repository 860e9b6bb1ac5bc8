"""Curvature anchor: the past as one quadratic form in dense coordinates.

On any sequences the Fisher information of every adapted map is nearly ``S (x) G`` (see
:mod:`holdfast.backbone.curvature`). So the divergence of the student from the model before the
task, per token, is to second order and without what several maps do together

    1/2 sum over maps of tr(G dW S dW^T),    dW = rho (B A - B_0 A_0).

It is a form in dense matrices, so it is valid under every allocation rule. The sequences are each
task's own, when it has just been learned, or samples of the previous model.
Source: Martens & Grosse 2015; Ritter et al. 2018 (own sequences, after the recursion of Laplace's
approximation, the product of means for the mean of products); on samples of the previous
model it is Holdfast's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from holdfast.anchors.base import (
    Anchor,
    Needs,
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
    placed,
)
from holdfast.core.config import Config


class KroneckerFisher(Anchor):
    """The quadratic form above.

    learned: with ``source: own`` the means of S and G over all learned items; general: those over
    the general text that the unmodified model wrote; each None until it exists. held: S and G of
    the form during a task, None between tasks.
    """

    class Config(Config):
        """source: the sequences that S and G are means over.

        own: each task's own, when it has just been learned; every item counts once, and S and G
        are a state of constant size. written: samples of the previous model before each task; no
        state is kept between tasks.

        strength: of the term; at 1 it is the divergence itself, per token. per_item: multiply it by
        the number of learned items and general sequences over the number of new items; strength is
        then the weight of one earlier item against one new item of as many tokens, as in Bayes'
        rule. max_items: the
        most learned items that count; beyond it the means are exponential averages, in which older
        items fade (general text does not).
        """

        source: Literal["own", "written"] = "own"
        strength: float = Field(4.0, ge=0)
        per_item: bool = True
        max_items: int | None = Field(None, ge=1)

    needs = Needs(curvature=True, updates=True)

    def __init__(self, config: KroneckerFisher.Config) -> None:
        self.config = config
        if config.source == "own":
            self.needs = Needs(updates=True)
        self.learned: Curvature | None = None
        self.general: Curvature | None = None
        self.held: Curvature | None = None
        self._rest: Callable[[Tensor], Tensor] = lambda tensor: tensor
        self._items = 0  # learned before it, at most max_items
        self._ratio = 1.0

    @property
    def strength(self) -> float:
        return super().strength * self._ratio

    def begin(self, start: TaskStart) -> None:
        most = self.config.max_items
        self._items = start.past_items if most is None else min(start.past_items, most)
        written = self.config.source == "written"
        if start.task == 1 and not written:
            self.general = start.curvature
        # The unmodified model may have written only empty sequences.
        general = start.general if written or self.general is not None else 0
        self._ratio = (self._items + general) / start.items if self.config.per_item else 1.0
        if written:
            self.held = start.curvature
            return
        device = start.parameters.device
        self.held = _mean(self.general, start.general, self.learned, self._items, device)
        self._rest = start.rest
        self.general, self.learned = self._rested(self.general), self._rested(self.learned)

    def loss(self, step: StepView) -> Tensor:
        if self.held is None:
            return step.parameters.new_zeros(())
        return quadratic_form(step.updates, self.held)

    def end(self, end: TaskEnd) -> None:
        self.held = None
        if self.config.source == "own":
            device, own = end.parameters.device, end.curvature()
            self.learned = self._rested(
                _mean(self.learned, self._items, own, end.sequences, device)
            )

    def _rested(self, known: Curvature | None) -> Curvature | None:
        return None if known is None else placed(known, self._rest)

    def state(self) -> dict[str, Tensor]:
        parts = {"learned": self.learned, "general": self.general}
        return {
            f"{part} {name}": tensor
            for part, known in parts.items()
            if known is not None
            for name, tensor in named(known).items()
        }

    def load(self, state: Mapping[str, Tensor]) -> None:
        if self.config.source == "written":
            check_names(state)
        parts: dict[str, dict[str, Tensor]] = {"learned": {}, "general": {}}
        for name, tensor in state.items():
            part, _, rest = name.partition(" ")
            parts[part][rest] = tensor
        self.learned, self.general = (
            from_named(found) if found else None for found in parts.values()
        )


def _mean(
    one: Curvature | None,
    count: int,
    other: Curvature | None,
    other_count: int,
    device: torch.device,
) -> Curvature | None:
    """The mean of two curvatures, weighted by their counts of items, on ``device``."""
    if one is None or other is None:
        known = other if one is None else one
        return None if known is None else placed(known, lambda part: part.to(device))
    return mixed(one, other, count / (count + other_count), device)


def quadratic_form(updates: Mapping[str, Update], curvature: Curvature) -> Tensor:
    """``1/2 sum tr(G dW S dW^T)``, a scalar, differentiable in the factors of the updates."""
    factors = [part for update in updates.values() for part in (update.left, update.right)]
    scales = [update.scale for update in updates.values()]
    form: Tensor = _QuadraticForm.apply([curvature[name] for name in updates], scales, *factors)  # type: ignore[no-untyped-call]
    return form


class _QuadraticForm(torch.autograd.Function):
    """The form with its gradient, ``G L (R S R^T)`` in ``L`` and alike in ``R``.

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
