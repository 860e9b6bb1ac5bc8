"""How far greedy decoding follows a given continuation, found in one teacher-forced pass."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

from holdfast.backbone.generation.decoding import batches
from holdfast.backbone.model import Backbone
from holdfast.backbone.sequences import collate, to_device

# Rows of logits in memory at a time: 600 MiB over 150k tokens in bfloat16.
POSITIONS_AT_ONCE = 2048


def follow(
    backbone: Backbone,
    prompts: Sequence[Sequence[int]],
    continuations: Sequence[Sequence[int]],
    *,
    tokens_per_batch: int,
) -> list[list[int]]:
    """The tokens that greedy decoding appends to each prompt, up to its first deviation.

    Returns the whole continuation if greedy decoding follows it to the end, otherwise its tokens
    before the first deviation and the token chosen there.

    prompts, continuations: token ids, none of them empty; tokens_per_batch: of both, padded.
    """
    sequences = [
        [*prompt, *continuation]
        for prompt, continuation in zip(prompts, continuations, strict=True)
    ]
    order: list[int] = []
    pieces: list[Tensor] = []
    with backbone.answering():
        for rows in batches([len(tokens) for tokens in sequences], tokens_per_batch):
            order += rows
            first = [len(prompts[row]) - 1 for row in rows]
            pieces += _argmax_from(backbone, [sequences[row] for row in rows], first)
    # Read once, after the last batch, so that the CPU does not wait for the GPU between batches.
    choices = iter(torch.cat(pieces).tolist() if pieces else [])
    followed: list[list[int]] = [[] for _ in sequences]
    for row in order:
        tokens = [next(choices) for _ in continuations[row]]
        followed[row] = _until_deviation(tokens, continuations[row])
    return followed


def _argmax_from(backbone: Backbone, sequences: list[list[int]], first: list[int]) -> list[Tensor]:
    """The argmax next token at each sequence's rows from ``first`` on, in pieces to concatenate."""
    batch = collate(sequences, backbone.device)
    starts = accumulate(batch.lengths, initial=0)
    positions = [
        row
        for start, begin, length in zip(starts, first, batch.lengths, strict=False)
        for row in range(start + begin, start + length)
    ]
    states = backbone.states(batch)[to_device(torch.tensor(positions), backbone.device)]
    return [
        backbone.logits(states[start : start + POSITIONS_AT_ONCE]).argmax(dim=-1)
        for start in range(0, len(states), POSITIONS_AT_ONCE)
    ]


def _until_deviation(choices: list[int], continuation: Sequence[int]) -> list[int]:
    for position, (choice, expected) in enumerate(zip(choices, continuation, strict=True)):
        if choice != expected:
            return choices[: position + 1]
    return choices
