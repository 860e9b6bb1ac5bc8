"""A few numbers of a base model, by which a state knows the model that it was made with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import Tensor, nn

from holdfast.core.errors import HoldfastError

_PARAMETERS, _NUMBERS = 8, 8  # read at most; of each
_PLAIN = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
# What bfloat16 and float16 round off, and what float16 takes for 0.
_ROUNDED, _SMALL = 2**-8, 2**-24

Fingerprint = Mapping[str, Mapping[str, Any]]


def fingerprint_of(base: Any) -> dict[str, dict[str, Any]]:
    """Numbers at fixed places of parameters that neither training nor a merge changes.

    base: the model below the adapters. By a parameter's name: places, each [row, column] of the
    matrix [its first dimension, all others], in the first half of the rows, since tokens are added
    at the end; numbers, what stands there. Empty where no such parameter holds plain numbers.
    """
    kept = _kept(base)
    if not kept:
        return {}
    names = list(kept)
    count = min(len(names), _PARAMETERS - 1)
    largest = max(names, key=lambda name: kept[name].numel())  # the embedding, mostly
    chosen = dict.fromkeys([largest, *(names[i * len(names) // count] for i in range(count))])
    return {name: _read(kept[name], _places(kept[name])) for name in chosen}


def check_base(base: Any, made_with: Fingerprint) -> None:
    """Raise HoldfastError where ``base`` is not the model of which the fingerprint was taken.

    The same model in another precision is the same, and so is one with more tokens; parameters that
    it does not have, or holds quantized, are passed over.
    """
    kept = _kept(base)
    for name, read in made_with.items():
        if name in kept and not _is_same(kept[name], read):
            raise HoldfastError(
                f"the state was made with another base model, whose {name} has other numbers; "
                "load it into the model it was made with"
            )


def _is_same(parameter: Tensor, read: Mapping[str, Any]) -> bool:
    places = read["places"]
    width = parameter[0].numel()
    if any(row >= len(parameter) or column >= width for row, column in places):
        return False
    now, then = (
        torch.tensor(numbers, dtype=torch.float64)
        for numbers in (_read(parameter, places)["numbers"], read["numbers"])
    )
    return torch.allclose(now, then, rtol=_ROUNDED, atol=_SMALL, equal_nan=True)


def _kept(base: Any) -> dict[str, Tensor]:
    """The parameters that no adapter stands on, by name; a tied one by each of its names."""
    adapted = {
        id(parameter)
        for module in filter(lambda module: isinstance(module, BaseTunerLayer), base.modules())
        for parameter in module.parameters()
    }
    return {
        name: parameter.detach()
        for name, parameter in base.named_parameters(remove_duplicate=False)
        if id(parameter) not in adapted and _is_plain(parameter)
    }


def _is_plain(parameter: Tensor) -> bool:
    """Whether its numbers are what the model computes with, and are there."""
    plain = type(parameter) is nn.Parameter and parameter.dtype in _PLAIN
    return plain and not parameter.is_meta and parameter.dim() > 0 and parameter.numel() > 0


def _places(parameter: Tensor) -> list[list[int]]:
    rows, width = len(parameter), parameter[0].numel()
    odd = [2 * number + 1 for number in range(_NUMBERS)]
    return [[k * rows // (4 * _NUMBERS), k * width // (2 * _NUMBERS)] for k in odd]


def _read(parameter: Tensor, places: Sequence[Sequence[int]]) -> dict[str, Any]:
    rows = parameter[[row for row, _ in places]].reshape(len(places), -1).cpu()
    numbers = [float(rows[place, column]) for place, (_, column) in enumerate(places)]
    return {"places": [list(place) for place in places], "numbers": numbers}
