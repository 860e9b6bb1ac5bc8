"""Token sequences of different lengths, packed without padding."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor

from holdfast.core.processes import rank_indices, world_size


@dataclass(frozen=True)
class BatchShard:
    """The sequences of a minibatch that one of several processes computes.

    lengths: rows of every sequence of the minibatch; chosen: the indices of this process's
    sequences; counted: False if there are more processes than sequences, and this one computes the
    first only to keep step with the others.
    """

    lengths: Sequence[int]
    chosen: Sequence[int]
    counted: bool

    @classmethod
    def of(cls, lengths: Sequence[int]) -> BatchShard | None:
        """The part of this process in sequences with so many rows; None for a single process."""
        if world_size() == 1:
            return None
        chosen = rank_indices(len(lengths))
        return cls(lengths, chosen or [0], counted=len(chosen) > 0)

    def of_minibatch(self, indices: Sequence[int]) -> list[int]:
        """From the indices of the whole minibatch, those of this process's sequences."""
        return [indices[place] for place in self.chosen]


@dataclass(frozen=True)
class Batch:
    """Packed sequences, as pairs of a token and its successor.

    inputs, targets: token ids [n]; places: [n], each row's index in the flat grid [sequences x
    longest], None if they fill it; lengths: rows of each sequence, n in sum; shard: if several
    processes share the minibatch, this one's part of it; teacher_states: a teacher's last hidden
    states [n, d], None if no loss needs them.
    """

    inputs: Tensor
    targets: Tensor
    places: Tensor | None
    lengths: Sequence[int]
    shard: BatchShard | None = None
    teacher_states: Tensor | None = None

    def grid(self, rows: Tensor, fill: int) -> Tensor:
        """Pad with ``fill`` on the right: [n, ...] -> [sequences, longest, ...].

        Attention is causal and the padding comes last, so it changes no real row.
        """
        shape = (len(self.lengths), max(self.lengths), *rows.shape[1:])
        if self.places is None:
            return rows.reshape(shape)
        padded = rows.new_full((shape[0] * shape[1], *rows.shape[1:]), fill)
        return padded.index_copy(0, self.places, rows).view(shape)

    def packed(self, grid: Tensor) -> Tensor:
        """Remove the padding: [sequences, longest, ...] -> [n, ...]."""
        flat = grid.reshape(-1, *grid.shape[2:])
        return flat if self.places is None else flat.index_select(0, self.places)


def collate(
    sequences: Sequence[Sequence[int]],
    device: torch.device,
    shard: BatchShard | None = None,
    teacher_states: Tensor | None = None,
) -> Batch:
    """One batch of sequences of at least two tokens.  Its rows are the mask m of eq. app-sft."""
    lengths = [len(sequence) - 1 for sequence in sequences]
    longest = max(lengths)
    starts = range(0, len(lengths) * longest, longest)
    host = torch.tensor(
        [
            list(chain.from_iterable(sequence[:-1] for sequence in sequences)),
            list(chain.from_iterable(sequence[1:] for sequence in sequences)),
            list(chain.from_iterable(map(range, starts, map(int.__add__, starts, lengths)))),
        ]
    )
    inputs, targets, places = to_device(host, device)
    full = len(inputs) == len(lengths) * longest
    return Batch(inputs, targets, None if full else places, lengths, shard, teacher_states)


def batches_by_length(
    lengths: Sequence[int], tokens: int, chosen: Iterable[int] | None = None
) -> Iterator[list[int]]:
    """Yield batches of indices, longest first: sequences of similar length.

    tokens: the most tokens of a batch, padding included; a longer sequence is a batch of its own;
    chosen: the indices, None for all.
    """
    every = range(len(lengths)) if chosen is None else chosen
    remaining = sorted(every, key=lambda index: lengths[index])
    while remaining:
        rows = max(1, tokens // max(1, lengths[remaining[-1]]))
        yield remaining[-rows:]
        remaining = remaining[:-rows]


def to_device(host: Tensor, device: torch.device) -> Tensor:
    """Copy to a device without blocking the host."""
    return (host.pin_memory() if device.type == "cuda" else host).to(device, non_blocking=True)


def pad_right(
    sequences: Sequence[Sequence[int]], pad: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Pad sequences on the right: ids and mask (bool, real tokens), both [batch, length]."""
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    mask = torch.arange(int(lengths.max())) < lengths[:, None]
    ids = torch.full(mask.shape, pad)
    ids[mask] = torch.tensor(list(chain.from_iterable(sequences)))
    return ids.to(device), mask.to(device)


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
