"""Cumulative sums that are deterministic if torch is asked for deterministic algorithms."""

from __future__ import annotations

import torch
from torch import Tensor

_WHOLE = 2.0**52  # the integer that stands for a mass of one


def cumulative(masses: Tensor) -> Tensor:
    """Cumulative sums of each row of [rows, n], all values in [0, 1].

    On a GPU torch has no deterministic cumulative sum of floats, so under deterministic algorithms
    integers are summed, for which the order does not matter.
    """
    if masses.device.type == "cpu" or not torch.are_deterministic_algorithms_enabled():
        return masses.cumsum(dim=1)
    whole = (masses.double() * _WHOLE).round().long().cumsum(dim=1)
    return (whole.double() / _WHOLE).to(masses.dtype)
