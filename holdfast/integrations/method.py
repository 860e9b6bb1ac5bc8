"""The anchors and the allocation rule that a caller names, plug-ins included."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from holdfast.allocation import Allocation
from holdfast.anchors import Anchor
from holdfast.backbone.generation.sampling import Sampling
from holdfast.core.config import Config, build
from holdfast.core.errors import HoldfastError, did_you_mean
from holdfast.learning.method import known_allocations, known_anchors

Settings = Mapping[str, Any]


def anchors_of(given: Sequence[str] | Mapping[str, Settings]) -> dict[str, Anchor]:
    """The anchors of these names, in the order in which a method's tag has them.

    Raises HoldfastError for an unknown one, wrong settings, two data anchors, and one that the
    loop of somebody else cannot supply.
    """
    kinds = known_anchors()
    settings = given if isinstance(given, Mapping) else {name: {} for name in given}
    for name in settings:
        if name not in kinds:
            raise HoldfastError(
                f'anchors: "{name}" is no anchor; {did_you_mean(name, list(kinds))}'
            )
    chosen = {name: kinds[name] for name in kinds if name in settings}
    anchors = {
        name: kind(build(kind.Config, dict(settings[name]), source=f"anchors.{name}"))
        for name, kind in chosen.items()
    }
    data = [name for name, anchor in anchors.items() if anchor.needs.replay]
    if len(data) > 1:
        raise HoldfastError(f"{' and '.join(data)} are both data anchors; choose one")
    return anchors


def allocation_of(given: str | Mapping[str, Settings]) -> tuple[str, Allocation]:
    """The allocation rule of this name; HoldfastError for an unknown one or wrong settings."""
    kinds = known_allocations()
    settings = {given: {}} if isinstance(given, str) else given
    if len(settings) != 1:
        raise HoldfastError(f"allocation names {len(settings)} rules; it needs one")
    ((name, values),) = settings.items()
    if name not in kinds:
        raise HoldfastError(f'allocation: "{name}" is no rule; {did_you_mean(name, list(kinds))}')
    kind = kinds[name]
    return name, kind(build(kind.Config, dict(values), source=f"allocation.{name}"))


def changes_gradient(rule: Allocation) -> bool:
    """Whether a rule changes the gradient before it is clipped."""
    overridden = type(rule).adjust_gradient is not Allocation.adjust_gradient
    return overridden and bool(getattr(rule.config, "project_gradient", True))


def check_settings(sampling: Sampling, anchors: Mapping[str, Anchor]) -> None:
    """Raise HoldfastError for a setting that only ``holdfast run`` obeys."""
    unused: list[tuple[str, Config, str]] = [
        ("sampling", sampling, name) for name in ("keep", "batch")
    ]
    names = ("minibatches_per_step", "trainable_seed_row")
    unused += [
        (f"anchors.{anchor}", given.config, name)
        for anchor, given in anchors.items()
        for name in names
    ]
    for section, settings, name in unused:
        fields = type(settings).model_fields
        if name in fields and getattr(settings, name) != fields[name].default:
            raise HoldfastError(
                f"{section}.{name} = {getattr(settings, name)}: a loop of your own does not have "
                "it; leave it out"
            )


def check_alone() -> None:
    """Raise HoldfastError where several processes train together."""
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    processes = torch.distributed.get_world_size() if distributed else 1
    if processes > 1:
        raise HoldfastError(f"anchors run in one process, and there are {processes}")
