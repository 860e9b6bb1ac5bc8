"""Build the anchors and the allocation rule that a caller names; check its arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, SupportsIndex, SupportsInt

import torch

from holdfast.allocation import Allocation
from holdfast.anchors import Anchor
from holdfast.backbone.generation.sampling import Sampling
from holdfast.core.config import AnyConfig, Config, build
from holdfast.core.errors import HoldfastError, did_you_mean
from holdfast.learning.method import known_allocations, known_anchors

Settings = Mapping[str, Any]


def anchors_of(given: Sequence[str] | Mapping[str, Settings | None]) -> dict[str, Anchor]:
    """Build the anchors of these names, in the order of a method's tag.

    given: names, or settings by name (None: the defaults). Raises HoldfastError for anything else,
    an unknown name, wrong settings, or two data anchors.
    """
    kinds = known_anchors()
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise HoldfastError(
            f"anchors = {shown(given)}: give a list of names, such as ['kfac', 'replay'], or "
            "settings by name"
        )
    settings = given if isinstance(given, Mapping) else dict.fromkeys(map(_name, given))
    for name in settings:
        if name not in kinds:
            raise HoldfastError(
                f'anchors: "{name}" is no anchor; {did_you_mean(str(name), list(kinds))}'
            )
    chosen = {name: kinds[name] for name in kinds if name in settings}
    anchors = {
        name: kind(built(kind.Config, settings[name], f"anchors.{name}"))
        for name, kind in chosen.items()
    }
    data = [name for name, anchor in anchors.items() if anchor.needs.replay]
    if len(data) > 1:
        raise HoldfastError(f"{' and '.join(data)} are both data anchors; choose one")
    return anchors


def allocation_of(given: str | Mapping[str, Settings | None]) -> tuple[str, Allocation]:
    """Build the allocation rule of this name; HoldfastError if it or its settings are wrong."""
    kinds = known_allocations()
    settings = {given: None} if isinstance(given, str) else given
    if not isinstance(settings, Mapping):
        raise HoldfastError(
            f"allocation = {shown(given)}: give a name, such as 'merge', or one name with its "
            "settings"
        )
    if len(settings) != 1:
        raise HoldfastError(f"allocation names {len(settings)} rules; it needs one")
    ((name, values),) = settings.items()
    if name not in kinds:
        raise HoldfastError(
            f'allocation: "{name}" is no rule; {did_you_mean(str(name), list(kinds))}'
        )
    kind = kinds[name]
    return name, kind(built(kind.Config, values, f"allocation.{name}"))


def _name(given: Any) -> str:
    if not isinstance(given, str):
        raise HoldfastError(
            f"anchors: {shown(given)} is no name; settings stand by name, such as "
            "{'kfac': {'strength': 2}}"
        )
    return given


def built(kind: type[AnyConfig], settings: Any, source: str) -> AnyConfig:
    """Build settings (None: the defaults); HoldfastError naming ``source`` if they are wrong."""
    if settings is not None and not isinstance(settings, Mapping):
        raise HoldfastError(
            f"{source} = {shown(settings)}: give settings by name, or None for the defaults"
        )
    return build(kind, dict(settings or {}), source=source)


def whole_number(name: str, value: Any, least: int = 1) -> int:
    """A setting as a whole number; HoldfastError for anything else, and for less than ``least``."""
    is_number = isinstance(value, SupportsInt | SupportsIndex) and not isinstance(value, bool)
    if not is_number or value % 1 != 0 or value < least:
        raise HoldfastError(f"{name} = {shown(value)}: give a whole number, {least} at least")
    return int(value)


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
    """Raise HoldfastError if several processes train together."""
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    processes = torch.distributed.get_world_size() if distributed else 1
    if processes > 1:
        raise HoldfastError(f"anchors run in one process, and there are {processes}")


def shown(value: Any) -> str:
    """An argument, for an error message: one line of at most 60 characters."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."
