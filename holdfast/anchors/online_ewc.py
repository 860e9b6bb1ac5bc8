"""Weight anchor: online EWC.

A coordinate is important when the trained model's loss on single sequences is sensitive to it.
Source: app:online-ewc.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from pydantic import Field
from torch import Tensor

from holdfast.anchors.base import (
    Anchor,
    Needs,
    StepView,
    TaskEnd,
    check_names,
)
from holdfast.anchors.quadratic import quadratic_penalty
from holdfast.core.config import Config
from holdfast.core.processes import mine, summed


class OnlineEWC(Anchor):
    """fisher: running, [P]; reference: theta*, [P]; scale: mean of the first task's Fisher, []."""

    class Config(Config):
        strength: float = Field(1000.0, ge=0)  # lambda_EWC
        decay: float = Field(1.0, ge=0, le=1)  # gamma
        sequences: int = Field(1000, ge=1)  # N_F
        normalise: bool = True  # to the first task's mean Fisher

    needs = Needs()

    def __init__(self, config: OnlineEWC.Config) -> None:
        self.config = config
        self.fisher: Tensor | None = None
        self.reference: Tensor | None = None
        self.scale: Tensor | None = None

    def loss(self, step: StepView) -> Tensor:
        """eq. app-online-ewc-penalty."""
        if self.fisher is None or self.reference is None:
            return step.parameters.new_zeros(())
        return quadratic_penalty(step.parameters, self.fisher, self.reference)

    def end(self, end: TaskEnd) -> None:
        """F~ <- gamma F~ + F^.

        Source: eq. app-fisher, app-fisher-normalize, app-online-ewc-update.
        """
        used = min(end.sequences, self.config.sequences)  # M_t
        fisher = torch.zeros_like(end.parameters)
        for index in mine(used):
            fisher += end.sequence_gradient(index).square()
        summed(fisher)
        fisher /= used
        mean = fisher.mean()
        if self.scale is None:
            self.scale = mean
        if self.config.normalise and float(mean) > 0:
            fisher *= self.scale / mean
        past = 0.0 if self.fisher is None else self.config.decay * self.fisher
        self.fisher = past + fisher
        self.reference = end.parameters.clone()

    def state(self) -> dict[str, Tensor]:
        if self.fisher is None or self.reference is None or self.scale is None:
            return {}
        return {"fisher": self.fisher, "reference": self.reference, "scale": self.scale}

    def load(self, state: Mapping[str, Tensor]) -> None:
        check_names(state, "fisher", "reference", "scale")
        self.fisher = state["fisher"] if state else None
        self.reference = state["reference"] if state else None
        self.scale = state["scale"] if state else None
