"""Cumulative sums that are deterministic where that is asked for."""

from __future__ import annotations

import torch
from torch import Tensor

_WHOLE = 2.0**52  # a mass of one, in whole numbers


def cumulative(masses: Tensor) -> Tensor:
    """Cumulative sums of each row of [rows, n], in integers under deterministic algorithms.

    On a GPU torch has no deterministic one in floats; in integers the order does not matter.
    """
    if masses.device.type == "cpu" or not torch.are_deterministic_algorithms_enabled():
        return masses.cumsum(dim=1)
    whole = (masses.double() * _WHOLE).round().long().cumsum(dim=1)
    return (whole.double() / _WHOLE).to(masses.dtype)
