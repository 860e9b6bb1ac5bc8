"""Function anchor: the previous model's distributions on the current task's own sequences.

Source: app:function-anchor.
"""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from holdfast.anchors.base import Anchor, Needs, State, Step
from holdfast.anchors.divergences import DivergenceConfig


class SelfDistillation(Anchor):
    """eq. app-function-loss on the current minibatch; it keeps no state between tasks."""

    class Config(DivergenceConfig):
        strength: float = Field(1.0, ge=0)  # lambda_F
        temperature: float = Field(5.0, gt=0)  # tau_F

    needs = Needs(teacher=True)

    def loss(self, state: State, step: Step) -> Tensor:
        if not step.current.has_teacher:
            return step.zero()
        return step.current.mean(self.config.between)
