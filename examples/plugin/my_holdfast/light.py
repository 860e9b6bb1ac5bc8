"""Allocation rule: merged LoRA whose updates are kept small."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from holdfast.allocation import Allocation, Config, Opening, State, Workspace


class Light(Allocation):
    """Penalise large factors: ``strength / 2 * sum over maps of (||A||^2 + ||B||^2)``.

    For each map, half of ``||A||^2 + ||B||^2`` is at least the nuclear norm of the product B A.
    """

    class Config(Config):
        strength: float = Field(0.01, ge=0)

    after_task = "merge"  # its factors are added to the dense matrices

    def begin(self, state: State, workspace: Workspace, opening: Opening) -> State:
        workspace.fresh(opening.seed, opening.task)
        return state

    def penalty(self, state: State, workspace: Workspace) -> Tensor:
        squares = [
            layer.lora_A.square().sum() + layer.lora_B.square().sum()
            for layer in workspace.layers.values()
        ]
        weight: float = self.config.strength / 2
        return weight * torch.stack(squares).sum()

    def retire(self, state: State, workspace: Workspace) -> State:
        workspace.fold()
        return state
