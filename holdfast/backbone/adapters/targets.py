"""Which linear maps of a model are adapted, and which of them read one tensor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import nn

from holdfast.backbone.adapters.frozen import QuantizedLinear, may_share, transposed
from holdfast.core.errors import HoldfastError

# Sibling maps that read the same tensor in the architectures that name them so.
_READ_TOGETHER = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))


def targets_of(
    model: nn.Module, targets: tuple[str, ...] | str, head: nn.Module
) -> Iterator[tuple[str, Any]]:
    """The linear maps to adapt, by name; HoldfastError when no map has a target's name."""
    found = [
        (name, module)
        for name, module in model.named_modules()
        if module is not head
        and (isinstance(module, nn.Linear | QuantizedLinear) or transposed(module))
        and (targets == "all-linear" or name.rpartition(".")[2] in targets)
    ]
    if not found:
        raise HoldfastError(
            f"lora.targets: no linear map of this backbone is named {', '.join(targets)}; "
            "name its own, or use lora.targets=all-linear"
        )
    yield from found


def groups_of(bases: Mapping[str, Any]) -> Iterator[list[str]]:
    """The maps' names, those that read the same tensor together."""
    grouped: set[str] = set()
    for name in bases:
        if name in grouped:
            continue
        parent, _, child = name.rpartition(".")
        family = next((names for names in _READ_TOGETHER if child in names), (child,))
        siblings = [f"{parent}.{one}" for one in family if f"{parent}.{one}" in bases]
        group = (
            siblings if len(siblings) > 1 and may_share([bases[s] for s in siblings]) else [name]
        )
        grouped.update(group)
        yield group
