"""Data anchor: unconditional generative replay.

Before every task but the first, sequences are sampled from the previous model, from the replay
token alone. They are distilled during the task: the student matches the previous model's whole
next-token distribution on them. They are discarded after the task.
Source: app:data-anchor.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from torch import Tensor

from holdfast.anchors.base import Anchor, Needs, State, Step
from holdfast.anchors.divergences import DivergenceConfig
from holdfast.model.projection import token_cross_entropy


class GenerativeReplay(Anchor):
    """eq. app-replay-loss on the replay minibatch; it keeps no state between tasks."""

    class Config(DivergenceConfig):
        """How the samples are learned; ``sampling`` says how they are drawn."""

        weight: float = Field(0.5, ge=0, le=1)  # w, eq. app-fit
        temperature: float = Field(2.0, gt=0)  # tau_D
        loss: Literal["soft", "cross_entropy"] = "soft"
        trainable_seed_row: bool = False
        minibatches_per_step: int = Field(1, ge=1)

    needs = Needs(replay=True)

    def strength(self, state: State) -> float:
        """w of eq. app-fit."""
        weight: float = self.config.weight
        return weight

    def loss(self, state: State, step: Step) -> Tensor:
        if step.replay is None:
            return step.zero()
        soft = self.config.loss == "soft"
        return step.replay.mean(self.config.between if soft else token_cross_entropy)
