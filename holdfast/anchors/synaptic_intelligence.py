"""Weight anchor: Synaptic Intelligence.

A coordinate is important when it lowered the fit loss along the optimiser's path.
Source: app:si.
"""

from __future__ import annotations

from collections.abc import Mapping

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
    check_names,
)
from holdfast.anchors.quadratic import quadratic_penalty
from holdfast.core.config import Config


class SynapticIntelligence(Anchor):
    """importance: Omega, [P]; reference: theta*, [P]; both None until the first task ended."""

    class Config(Config):
        strength: float = Field(1.0, ge=0)  # lambda_SI
        damping: float = Field(0.1, gt=0)  # xi

    needs = Needs(fit_gradient=True)

    def __init__(self, config: SynapticIntelligence.Config) -> None:
        self.config = config
        self.importance: Tensor | None = None
        self.reference: Tensor | None = None
        self._start: Tensor | None = None  # theta_{t,0}
        self._path: Tensor | None = None  # omega_t

    def begin(self, start: TaskStart) -> None:
        self._start = start.rest(start.parameters.clone())
        self._path = torch.zeros_like(start.parameters)

    def loss(self, step: StepView) -> Tensor:
        """eq. app-si-penalty."""
        if self.importance is None or self.reference is None:
            return step.parameters.new_zeros(())
        return quadratic_penalty(step.parameters, self.importance, self.reference)

    def after_step(self, change: StepChange) -> None:
        """omega <- omega - g (theta_{k+1} - theta_k).  Source: eq. app-si-path."""
        assert self._path is not None
        self._path.addcmul_(change.fit_gradient, change.after - change.before, value=-1)

    def end(self, end: TaskEnd) -> None:
        """Omega <- Omega + max(0, omega) / (Delta^2 + xi).  Source: eq. app-si-consolidate."""
        assert self._path is not None
        assert self._start is not None
        start = self._start.to(end.parameters.device)
        displacement = end.parameters - start  # Delta, eq. app-si-displacement
        gained = self._path.clamp(min=0) / (displacement.square() + self.config.damping)
        self.importance = gained if self.importance is None else self.importance + gained
        self.reference = end.parameters.clone()
        self._path = self._start = None

    def state(self) -> dict[str, Tensor]:
        if self.importance is None or self.reference is None:
            return {}
        return {"importance": self.importance, "reference": self.reference}

    def load(self, state: Mapping[str, Tensor]) -> None:
        check_names(state, "importance", "reference")
        self.importance = state["importance"] if state else None
        self.reference = state["reference"] if state else None
