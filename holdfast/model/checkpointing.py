"""Checkpointing: each block keeps only its inputs, and the backward pass computes it again.

Source: Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer

from holdfast.core.errors import HoldfastError


def checkpoint_blocks(model: nn.Module) -> None:
    """Let every block of ``model`` keep only its inputs in passes with gradients.

    Transformers' own switch works only in training mode, which turns on the model's dropout, too.
    Raises HoldfastError if the architecture has no block that may be computed twice.
    """
    blocks = list(_outermost(model))
    if not blocks:
        raise HoldfastError(
            f"backbone.checkpointing: {type(model).__name__} has no blocks that transformers can "
            "compute twice; leave it out, and lower optim.batch_size instead"
        )
    for block in blocks:
        block.forward = _keeping_inputs(block.forward)


def _outermost(module: nn.Module) -> Iterator[nn.Module]:
    for child in module.children():
        if isinstance(child, GradientCheckpointingLayer):
            yield child
        else:
            yield from _outermost(child)


def _keeping_inputs(forward: Callable[..., Any]) -> Callable[..., Any]:
    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*args, **kwargs)
        # The generator's state is restored, so that both passes drop the same entries.
        return checkpoint(forward, *args, use_reentrant=False, **kwargs)

    return checkpointed
