"""The log-likelihood that a model gives to the tokens of sequences."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from holdfast.backbone.generation.greedy import batches
from holdfast.backbone.model import Backbone
from holdfast.backbone.sequences import collate

_TOKENS_PER_BATCH = 4096
# Rows of logits in memory at a time: 600 MiB over 150k tokens in float32.
_POSITIONS_AT_ONCE = 1024


def token_log_likelihoods(
    backbone: Backbone, sequences: Sequence[Sequence[int]], impossible: int | None = None
) -> list[Tensor]:
    """``log p(z_l | z_<l)`` in nats of every token but the first: one [length - 1] a sequence.

    float64 on the CPU, from a softmax in float32 at least, without dropout. sequences: token ids,
    two or more in each; impossible: a token whose probability is taken as 0.
    """
    found: dict[int, Tensor] = {}
    with torch.no_grad(), backbone.answering():
        for rows in batches([len(tokens) for tokens in sequences], _TOKENS_PER_BATCH):
            batch = collate([sequences[row] for row in rows], backbone.device)
            states = backbone.states(batch)
            pieces = [
                _log_likelihoods(backbone, part, targets, impossible)
                for part, targets in zip(
                    states.split(_POSITIONS_AT_ONCE),
                    batch.targets.split(_POSITIONS_AT_ONCE),
                    strict=True,
                )
            ]
            found |= zip(rows, torch.cat(pieces).split(list(batch.lengths)), strict=True)
    return [found[row] for row in range(len(sequences))]


def _log_likelihoods(
    backbone: Backbone, states: Tensor, targets: Tensor, impossible: int | None
) -> Tensor:
    """States [n, d] and targets [n] -> [n] float64, on the CPU."""
    logits = backbone.logits(states)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if impossible is not None:
        logits[:, impossible] = -torch.inf
    return -torch.nn.functional.cross_entropy(logits, targets, reduction="none").double().cpu()
