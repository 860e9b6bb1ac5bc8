"""Random seeds: each purpose has its own, derived from its name."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def derive(seed: int, *purpose: str | int) -> int:
    """A 63-bit seed for one purpose.

    Different purposes have different streams of random numbers, so adding a draw for one (say,
    replay sampling) cannot shift another (say, the order of the data).

    seed: the trajectory's seed; purpose: words and indices, such as ``"dropout", task, step``.
    """
    name = "\x1f".join(f"{type(part).__name__}:{part}" for part in (seed, *purpose))
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big") >> 1


def generator(seed: int, *purpose: str | int) -> torch.Generator:
    """A torch generator seeded by :func:`derive`; the global generators are not used."""
    import torch

    return torch.Generator().manual_seed(derive(seed, *purpose))
