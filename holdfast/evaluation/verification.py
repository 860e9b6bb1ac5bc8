"""How far greedy decoding follows a given continuation: one pass over both, nothing generated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from holdfast.backbone.decoding import Decodable, batches, evaluating

# Rows of logits at a time: 600 MiB over 150k tokens in bfloat16.
_POSITIONS_AT_ONCE = 2048


class Verifiable(Decodable, Protocol):
    """What verification asks of a backbone: its hidden states and its output head."""

    def hidden(self, ids: Tensor, /) -> Tensor: ...  # [batch, length] -> [batch, length, d]
    def logits(self, hidden: Tensor, /) -> Tensor: ...  # [n, d] -> [n, vocabulary]


def follow(
    backbone: Verifiable,
    prompts: Sequence[Sequence[int]],
    continuations: Sequence[Sequence[int]],
    *,
    tokens_per_batch: int,
) -> list[list[int]]:
    """What greedy decoding appends to each prompt, up to where it leaves the continuation.

    Returns the whole continuation where greedy decoding follows it to the end, otherwise its
    tokens before the first deviation and the token chosen there.

    prompts, continuations: token ids, none of them empty; tokens_per_batch: of both, padded.
    """
    # The last token predicts nothing that is asked for.
    inputs = [
        [*prompt, *continuation[:-1]]
        for prompt, continuation in zip(prompts, continuations, strict=True)
    ]
    order: list[int] = []
    pieces: list[Tensor] = []
    with evaluating(backbone.model):
        for rows in batches([len(tokens) for tokens in inputs], tokens_per_batch):
            order += rows
            first = [len(prompts[row]) - 1 for row in rows]
            pieces += _argmax_from(backbone, [inputs[row] for row in rows], first)
    # Read once, after the last batch: the host never waits for the device in between.
    choices = iter(torch.cat(pieces).tolist() if pieces else [])
    followed: list[list[int]] = [[] for _ in inputs]
    for row in order:
        chosen = [next(choices) for _ in continuations[row]]
        followed[row] = _until_deviation(chosen, continuations[row])
    return followed


def _argmax_from(backbone: Verifiable, inputs: list[list[int]], first: list[int]) -> list[Tensor]:
    """The likeliest next token at every position from ``first`` on, row after row, in pieces."""
    longest = max(map(len, inputs))
    padded = [row + [backbone.pad_token] * (longest - len(row)) for row in inputs]
    asked = [
        number * longest + position
        for number, (row, begin) in enumerate(zip(inputs, first, strict=True))
        for position in range(begin, len(row))
    ]
    ids = torch.tensor(padded, device=backbone.device)
    # No mask: attention is causal, so no token sees the padding on its right.
    states = backbone.hidden(ids).flatten(0, 1)[torch.tensor(asked, device=backbone.device)]
    return [
        backbone.logits(states[start : start + _POSITIONS_AT_ONCE]).argmax(dim=-1)
        for start in range(0, len(states), _POSITIONS_AT_ONCE)
    ]


def _until_deviation(choices: list[int], continuation: Sequence[int]) -> list[int]:
    for position, (choice, given) in enumerate(zip(choices, continuation, strict=True)):
        if choice != given:
            return choices[: position + 1]
    return choices
