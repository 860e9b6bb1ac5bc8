"""The change of every map since a task began, as factors."""

from __future__ import annotations

from collections.abc import Callable

import torch

from holdfast.anchors.base import Tree, Update
from holdfast.model.lora import LoraWorkspace


def updates_since(start: Tree, workspace: LoraWorkspace) -> Callable[[], dict[str, Update]]:
    """Return a function for every map's change since a workspace's coordinates were ``start``.

    The changes are differentiable in the factors.
    """
    # A fresh B is zero: then the change needs no second pair of factors.
    moved = any(bool(factor.any()) for name, factor in start.items() if name.endswith(".lora_B"))

    def updates() -> dict[str, Update]:
        changes = {}
        for name, layer in workspace.layers.items():
            lora_A, lora_B = layer.lora_A, layer.lora_B
            if moved:
                lora_B = torch.cat([lora_B, -start[f"{name}.lora_B"]], dim=1)
                lora_A = torch.cat([lora_A, start[f"{name}.lora_A"]])
            changes[name] = Update(lora_B, lora_A, layer.scale)
        return changes

    return updates
