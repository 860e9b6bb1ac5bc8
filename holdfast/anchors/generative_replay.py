"""Data anchor: unconditional generative replay.

Before every task but the first, the previous model writes a set of sequences from the seed token
alone. They are learned beside the task, as soft targets: the student matches the previous
model's whole next-token distribution. The set is thrown away after the task.
Source: app:data-anchor.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from torch import Tensor

from holdfast.anchors.base import (
    Anchor,
    Needs,
    StepView,
)
from holdfast.anchors.divergences import Divergence, divergence
from holdfast.backbone.projection import TokenLogits, token_cross_entropy
from holdfast.core.config import Config


class GenerativeReplay(Anchor):
    """eq. app-replay-loss on the replay minibatch; it keeps no state between tasks."""

    class Config(Config):
        """How the samples are learned; how they are drawn is a matter of ``sampling``."""

        weight: float = Field(0.5, ge=0, le=1)  # w, eq. app-fit
        temperature: float = Field(2.0, gt=0)  # tau_D
        divergence: Divergence = "forward_kl"
        vocabulary: int | None = Field(None, ge=1)  # truncate the divergence to so many tokens
        loss: Literal["soft", "cross_entropy"] = "soft"
        trainable_seed_row: bool = False
        minibatches_per_step: int = Field(1, ge=1)

    needs = Needs(replay=True)

    @property
    def strength(self) -> float:
        """w of eq. app-fit."""
        weight: float = self.config.weight
        return weight

    def loss(self, step: StepView) -> Tensor:
        if step.replay is None:
            return step.parameters.new_zeros(())
        return step.replay.mean(self._token_loss)

    def _token_loss(self, tokens: TokenLogits) -> Tensor:
        if self.config.loss == "cross_entropy":
            return token_cross_entropy(tokens)
        return divergence(
            self.config.divergence,
            tokens.teacher,
            tokens.student,
            self.config.temperature,
            self.config.vocabulary,
            fused=tokens.fused,
        )
