"""Samples and hidden states of the previous model, the teacher, computed once per task.

Under every allocation rule the student before its first step is the model after the previous
task. All sequences that need teacher outputs are known then, so its hidden states are computed
once, in evaluation mode, and projected through the frozen head whenever a loss needs them. No
copy of the model is made and no forward pass is repeated.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import accumulate
from typing import Any

import torch

from holdfast.backbone.generation.sampling import Sampling, sample_continuations
from holdfast.backbone.model import Backbone
from holdfast.backbone.sequences import TokenStates, batches_by_length, collate
from holdfast.core.processes import all_gather_rows, rank_indices
from holdfast.core.seeding import generator

TOKENS_AT_ONCE = 16_384


def states_of(backbone: Backbone, sequences: Sequence[Sequence[int]]) -> TokenStates:
    """The last hidden states at all predicting positions, in the order of ``sequences``."""
    indices = rank_indices(len(sequences))
    empty = backbone.head.weight.new_empty(0, backbone.head.weight.shape[1])
    pieces = [empty] * len(sequences)
    lengths = [len(sequence) for sequence in sequences]
    for chosen in batches_by_length(lengths, indices, TOKENS_AT_ONCE):
        batch = collate([sequences[index] for index in chosen], backbone.device)
        with backbone.answering():
            packed = backbone.states(batch)
        for index, piece in zip(chosen, packed.split(list(batch.lengths)), strict=True):
            pieces[index] = piece
    counts = [len(sequence) - 1 for sequence in sequences]
    states = all_gather_rows(torch.cat(pieces), counts)
    return TokenStates(states, list(accumulate(counts, initial=0)))


def replay_set(
    backbone: Backbone,
    config: Sampling,
    *,
    seed: int,
    task: int,
    keep_stop: bool,
    stops: int = 1,
) -> list[list[int]]:
    """Sample sequences of the previous model from the replay token; empty ones are dropped.

    keep_stop: whether a sequence keeps its stop token, and so a loss on it (true if the template
    trains on it); stops: a sequence ends at its ``stops``-th stop token. Sequences are the sampled
    tokens; text is never tokenized again.
    Source: eq. app-replay-generate, eq. app-replay-buffer.
    """
    assert backbone.seed_token is not None
    begins = torch.full((config.samples,), backbone.seed_token)
    return _written(backbone, begins, config, seed, ("replay", task), keep_stop, stops)


def general_text(
    backbone: Backbone, config: Sampling, *, seed: int, task: int, keep_stop: bool
) -> list[list[int]]:
    """Sample sequences of the previous model from uniformly drawn tokens of its vocabulary."""
    never = {backbone.seed_token, *backbone.stop_tokens}
    drawable = text_tokens(backbone.tokenizer, never)
    source = generator(seed, "general text", task)
    chosen = torch.randint(len(drawable), (config.general,), generator=source)
    begins = torch.tensor(drawable)[chosen]
    return _written(backbone, begins, config, seed, ("general", task), keep_stop)


def text_tokens(tokenizer: Any, never: Collection[int | None]) -> list[int]:
    """The tokens of a vocabulary that are neither special nor in ``never``, ascending."""
    excluded = {*never, *tokenizer.all_special_ids}
    return sorted(token for token in tokenizer.get_vocab().values() if token not in excluded)


def _written(
    backbone: Backbone,
    begins: torch.Tensor,
    config: Sampling,
    seed: int,
    purpose: tuple[str | int, ...],
    keep_stop: bool,
    stops: int = 1,
) -> list[list[int]]:
    drawn = sample_continuations(backbone, begins, config, seed=seed, purpose=purpose, stops=stops)
    sequences = []
    for begin, tokens in zip(begins.tolist(), drawn, strict=True):
        text = tokens[:-1] if tokens[-1] in backbone.stop_tokens else tokens
        if text:
            sequences.append([begin, *(tokens if keep_stop else text)])
    return sequences
