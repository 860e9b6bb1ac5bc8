"""Token sequences of different lengths, and what a model holds about each of their tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """Right-padded sequences and the positions that predict a token.

    ids: [batch, length]; mask: [batch, length] bool, real tokens; predicts: [batch, length] bool,
    positions followed by a real token; targets: [n], the tokens they predict, row by row.
    """

    ids: Tensor
    mask: Tensor
    predicts: Tensor
    targets: Tensor

    def select(self, hidden: Tensor) -> Tensor:
        """The states of the predicting positions: [batch, length, d] -> [n, d]."""
        return hidden[self.predicts]


def collate(sequences: Sequence[Sequence[int]], pad: int, device: torch.device) -> Batch:
    """Pad sequences on the right.  m of eq. app-sft is ``predicts``, shifted by one."""
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    positions = torch.arange(int(lengths.max()))
    mask = positions < lengths[:, None]
    ids = torch.full(mask.shape, pad)
    ids[mask] = torch.tensor([token for sequence in sequences for token in sequence])
    predicts = positions < lengths[:, None] - 1
    targets = ids[:, 1:][mask[:, 1:]]
    return Batch(*(tensor.to(device) for tensor in (ids, mask, predicts, targets)))


@dataclass(frozen=True)
class TokenStates:
    """One vector for every predicting position of a list of sequences, packed.

    states: [sum of (length - 1), d]; starts: first row of each sequence, and the end.
    """

    states: Tensor
    starts: Sequence[int]

    def rows(self, chosen: Sequence[int]) -> Tensor:
        """The vectors of some sequences, one after another: [n, d]."""
        return torch.cat([self.states[self.starts[i] : self.starts[i + 1]] for i in chosen])
