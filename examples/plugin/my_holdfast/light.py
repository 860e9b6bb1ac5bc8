"""Allocation rule: merged LoRA whose updates are kept small."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from holdfast.allocation import Allocation, Config, Opening
from holdfast.backbone.adapters.workspace import Adapters


class Light(Allocation):
    """Adds ``strength * sum (||A||^2 + ||B||^2) / 2`` over the maps, A, B being their new factors.

    For each map that is an upper bound of the nuclear norm of its update B A.
    """

    class Config(Config):
        strength: float = Field(0.01, ge=0)

    fate = "folded"  # after a task its factors are added to the dense matrices

    def begin(self, adapters: Adapters, opening: Opening) -> None:
        adapters.fresh(opening.seed, opening.task)

    def penalty(self, adapters: Adapters) -> Tensor:
        squares = [
            layer.down.square().sum() + layer.up.square().sum()
            for layer in adapters.layers.values()
        ]
        weight: float = self.config.strength / 2
        return weight * torch.stack(squares).sum()

    def retire(self, adapters: Adapters) -> None:
        adapters.fold()
