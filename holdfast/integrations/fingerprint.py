"""A few numbers of a base model, by which a state recognises the model that it was made with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import Tensor, nn

from holdfast.core.errors import HoldfastError

_PARAMETERS, _NUMBERS = 8, 8  # parameters read at most; numbers of each
_PLAIN = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
# The relative rounding of bfloat16, and the smallest number of float16.
_ROUNDED, _SMALL = 2**-8, 2**-24

Fingerprint = Mapping[str, Mapping[str, Any]]


def fingerprint_of(base: Any) -> dict[str, dict[str, Any]]:
    """Numbers at fixed places of parameters that neither training nor a merge changes.

    base: the model without adapters. Returns, by a parameter's name, places: each [row, column] of
    the matrix [its first dimension, all others], in the first half of the rows, since tokens are
    added at the end; numbers: the values there. Empty if all such parameters are quantized.
    """
    kept = _kept(base)
    if not kept:
        return {}
    names = list(kept)
    count = min(len(names), _PARAMETERS - 1)
    largest = max(names, key=lambda name: kept[name].numel())  # usually the embedding
    chosen = dict.fromkeys([largest, *(names[i * len(names) // count] for i in range(count))])
    return {name: _read(kept[name], _places(kept[name])) for name in chosen}


def check_base(base: Any, made_with: Fingerprint) -> None:
    """Raise HoldfastError if ``base`` is not the model of which the fingerprint was taken.

    It may have another precision and more tokens; parameters that it does not have, or has
    quantized, are skipped.
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
    """The plain parameters outside adapted layers, by name; a tied one under each of its names."""
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
    """Whether a parameter is not quantized, not on the meta device and not empty."""
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
