"""The sequences of one task."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from holdfast.core.errors import HoldfastError


@dataclass(frozen=True)
class TaskSequences:
    """ids: the token ids of each training sequence, in task order; labels: -100 where untrained."""

    ids: list[list[int]]
    labels: list[list[int]]

    @classmethod
    def of(
        cls, ids: Iterable[Sequence[int]], labels: Iterable[Sequence[int]] | None = None
    ) -> TaskSequences:
        """From any sequences of integers; HoldfastError for none, a short one, or odd labels."""
        read = [[int(token) for token in one] for one in ids]
        given = read if labels is None else [[int(token) for token in one] for one in labels]
        if not read:
            raise HoldfastError("the task has no sequences; an anchor needs at least one")
        for number, (one, other) in enumerate(zip(read, given, strict=False), start=1):
            if len(one) < 2 or len(one) != len(other):
                raise HoldfastError(
                    f"sequence {number} of the task has {len(one)} tokens and {len(other)} labels; "
                    "it needs two tokens at least, and a label for each"
                )
        if len(read) != len(given):
            raise HoldfastError(f"{len(read)} sequences have labels for {len(given)}")
        return cls(read, given)

    @cached_property
    def fingerprint(self) -> str:
        """A digest of all tokens and labels."""
        text = repr((self.ids, self.labels)).encode()
        return hashlib.sha256(text).hexdigest()

    def batch(self, index: int, device: torch.device) -> dict[str, Tensor]:
        """One sequence as a collated batch."""
        given = {"input_ids": self.ids[index], "labels": self.labels[index]}
        return {name: torch.tensor([one], device=device) for name, one in given.items()}
