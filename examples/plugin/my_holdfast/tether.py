"""Weight anchor: stay near the coordinates at which the last task ended."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field
from torch import Tensor

from holdfast.anchors import Anchor, Config, StepView, TaskEnd


class Tether(Anchor):
    """``sum_i (theta_i - theta*_i)^2``; reference: theta*, [P], None until the first task ended."""

    class Config(Config):
        strength: float = Field(0.01, ge=0)  # the coefficient in the objective

    def __init__(self, config: Tether.Config) -> None:
        super().__init__(config)
        self.reference: Tensor | None = None

    def loss(self, step: StepView) -> Tensor:
        if self.reference is None:
            return step.parameters.new_zeros(())
        return (step.parameters - self.reference).square().sum()

    def end(self, end: TaskEnd) -> None:
        # The vector is trained on in place: without a copy the reference would follow it.
        self.reference = end.parameters.clone()

    def state(self) -> dict[str, Tensor]:
        return {} if self.reference is None else {"reference": self.reference}

    def load(self, state: Mapping[str, Tensor]) -> None:
        self.reference = state["reference"] if state else None
