"""Build the anchors and the allocation rule that a caller names; check its arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import index
from typing import Any, SupportsIndex

import torch

from holdfast.allocation import Allocation
from holdfast.anchors import Anchor
from holdfast.core.config import AnyConfig, build
from holdfast.core.errors import HoldfastError, did_you_mean
from holdfast.learning.method import known_allocations, known_anchors
from holdfast.model.chat import chat_form
from holdfast.model.generation.sampling import Sampling

Settings = Mapping[str, Any]


def anchors_of(given: Sequence[str] | Mapping[str, Settings | None]) -> dict[str, Anchor]:
    """Build the anchors of these names, in the order of a method's tag.

    given: names, or settings by name (None: the defaults). Raises HoldfastError for anything else,
    an unknown name, wrong settings, or two data anchors.
    """
    kinds = known_anchors()
    try:
        if isinstance(given, str):
            raise TypeError
        settings = given if isinstance(given, Mapping) else dict.fromkeys(given)
    except TypeError:
        raise HoldfastError(
            f"anchors = {given!r:.60}: give a list of names, such as ['kfac', 'replay'], or "
            "settings by name, such as {'kfac': {'strength': 2}}"
        ) from None
    for name in settings:
        if name not in kinds:
            raise HoldfastError(
                f'anchors: "{name}" is no anchor; {did_you_mean(str(name), list(kinds))}'
            )
    anchors = {
        name: kinds[name](built(kinds[name].Config, settings[name], f"anchors.{name}"))
        for name in kinds
        if name in settings
    }
    data = [name for name, anchor in anchors.items() if anchor.needs.replay]
    if len(data) > 1:
        raise HoldfastError(f"{' and '.join(data)} are both data anchors; choose one")
    return anchors


def allocation_of(given: str | Mapping[str, Settings | None]) -> tuple[str, Allocation]:
    """Build the allocation rule of this name; HoldfastError if it or its settings are wrong."""
    kinds = known_allocations()
    settings: Any = {given: None} if isinstance(given, str) else given
    if not isinstance(settings, Mapping) or len(settings) != 1:
        raise HoldfastError(
            f"allocation = {given!r:.60}: give one name, such as 'merge', or one with its settings"
        )
    ((name, values),) = settings.items()
    if name not in kinds:
        raise HoldfastError(
            f'allocation: "{name}" is no rule; {did_you_mean(str(name), list(kinds))}'
        )
    return name, kinds[name](built(kinds[name].Config, values, f"allocation.{name}"))


def built(kind: type[AnyConfig], settings: Any, source: str) -> AnyConfig:
    """Build settings (None: the defaults); HoldfastError naming ``source`` if they are wrong."""
    return build(kind, {} if settings is None else settings, source=source)


def count_of(name: str, value: Any) -> int:
    """A setting as a whole number; HoldfastError for anything else, and for less than 1."""
    if not isinstance(value, SupportsIndex) or index(value) < 1:
        raise HoldfastError(f"{name} = {value!r:.60}: give a whole number, 1 at least")
    return index(value)


def changes_gradient(rule: Allocation) -> bool:
    """Whether a rule changes the gradient before it is clipped."""
    overridden = type(rule).adjust_gradient is not Allocation.adjust_gradient
    return overridden and bool(getattr(rule.config, "project_gradient", True))


def check_settings(sampling: Sampling, anchors: Mapping[str, Anchor]) -> None:
    """Raise HoldfastError for a setting that only ``holdfast run`` obeys."""
    of_a_run = {"keep", "batch", "minibatches_per_step", "trainable_seed_row"}
    sections = {f"anchors.{name}": anchor.config for name, anchor in anchors.items()}
    for section, settings in {"sampling": sampling, **sections}.items():
        for name in of_a_run & settings.model_fields_set:
            value = getattr(settings, name)
            if value != type(settings).model_fields[name].default:
                raise HoldfastError(
                    f"{section}.{name} = {value}: a loop of your own does not have it; leave it out"
                )


def check_alone() -> None:
    """Raise HoldfastError if several processes train together."""
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    processes = torch.distributed.get_world_size() if distributed else 1
    if processes > 1:
        raise HoldfastError(
            f"anchors run in one process, and there are {processes}; start one, on one device"
        )


def given_beginning(
    begin_with: Sequence[int] | str | None, tokenizer: Any, vocabulary: int
) -> list[int]:
    """The token ids of ``begin_with``: the given ones, or a chat's first ones; empty for None.

    Raises HoldfastError for anything else, for ids that are not in the vocabulary, and for ``chat``
    without a tokenizer or with an unusable chat template.
    """
    if begin_with == "chat":
        if tokenizer is None:
            raise HoldfastError("begin_with = chat: give the tokenizer, whose template says how")
        return list(chat_form(tokenizer).prefix)
    try:
        tokens = [] if begin_with is None else [index(token) for token in begin_with]  # type: ignore[arg-type]
    except TypeError:
        raise HoldfastError(
            f"begin_with = {begin_with!r:.60}: give a list of token ids, or 'chat', the only text"
        ) from None
    for token in tokens:
        if not 0 <= token < vocabulary:
            raise HoldfastError(
                f"begin_with: {token} is no token of the model; give ids from 0 to {vocabulary - 1}"
            )
    return tokens


def first_token(tokenizer: Any, base: Any) -> list[int]:
    """The token that a sample begins with by default: the BOS token, or else the EOS token.

    Raises HoldfastError if the model has neither.
    """
    for name in ("bos_token_id", "eos_token_id"):
        for token in _special(name, tokenizer, base):
            return [token]
    raise HoldfastError(
        "the model has no first token to sample from; give begin_with=[TOKEN ID, ...]"
    )


def stop_tokens(tokenizer: Any, base: Any) -> set[int]:
    """The tokens that end a sample: every EOS token of tokenizer, generation config and model."""
    return set(_special("eos_token_id", tokenizer, base))


def _special(name: str, tokenizer: Any, base: Any) -> Iterable[int]:
    """The tokens of this name that tokenizer, generation config and model have, in this order."""
    for owner in (tokenizer, getattr(base, "generation_config", None), base.config):
        token = getattr(owner, name, None)
        yield from token if isinstance(token, list) else [] if token is None else [token]
