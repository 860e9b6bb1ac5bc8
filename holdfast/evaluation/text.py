"""Bits per byte of plain text: how well a model still models language in general.

Informative for models of any size; its unit does not depend on the tokenizer.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from importlib.resources import files
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from holdfast.core.errors import HoldfastError
from holdfast.core.processes import all_reduce_, rank_indices
from holdfast.model.backbone import Backbone
from holdfast.model.sequences import batches_by_length, collate

_TOKENS_PER_BATCH = 4096
# Rows of logits in memory at a time: 600 MiB over 150k tokens in float32.
_POSITIONS_AT_ONCE = 1024
WINDOW = 512  # tokens per window, fewer when the model has fewer positions
# The options that the bits of a text depend on, besides the model and the text.
SETTINGS = {"window": WINDOW, "overlap": 0.5}
NO_NUMBERS = (
    "this model's probabilities are not numbers (NaN): its weights are damaged, or its training "
    "has diverged; choose another model or an earlier boundary"
)
_HEADING = re.compile(r"^= (.+)$", re.MULTILINE)


class Passage(NamedTuple):
    """A text to measure, independent of others. id: fixed across runs, such as text/bread."""

    id: str
    text: str


class Length(NamedTuple):
    """The code length of a text under a model, in bits, and its UTF-8 bytes and tokens."""

    bits: float
    bytes: int
    tokens: int


def everyday_passages() -> list[Passage]:
    """Ten short English texts about everyday matters in the package's data, 9 kB."""
    text = (files("holdfast.evaluation") / "everyday.txt").read_text(encoding="utf-8")
    _, *parts = _HEADING.split(text)
    return [
        Passage(f"text/{title.lower().replace(' ', '_')}", body.strip())
        for title, body in zip(parts[::2], parts[1::2], strict=True)
    ]


def lengths(backbone: Backbone, texts: Sequence[str], window: int = WINDOW) -> list[Length]:
    """The code length of each text under a model, in order; texts are independent.

    Every token costs minus log2 of its probability. The first is predicted after the BOS token, or
    else the EOS token; in a vocabulary without either it costs log2 of the vocabulary's size. A
    text longer than a window is read in windows that overlap by half: all tokens of the first are
    counted, and of each later window those not in an earlier one, so that each of these has at
    least half a window before it. Probabilities exclude the replay token, which is not text.

    window: the most tokens read together, bounded also by the model's positions.
    Raises HoldfastError for a text without tokens, and for a model whose logits are NaN.
    """
    window = min(window, backbone.positions or window)
    assert window >= 2, "a token and one that follows it"
    tokenized = [tokens_of(backbone, text) for text in texts]
    if not all(tokenized):
        raise HoldfastError("a text without tokens has no bits per byte; remove it")
    bos: int | None = backbone.tokenizer.bos_token_id
    first = backbone.eos_token if bos is None else bos
    vocabulary = len(backbone.tokenizer) - (backbone.seed_token is not None)
    unpredicted = math.log2(vocabulary) if first is None else 0.0
    rows: list[_Window] = []
    for place, tokens in enumerate(tokenized):
        rows += _windows(place, tokens if first is None else [first, *tokens], window)
    # Measure windows, not whole texts: most have the same length, so there is little padding.
    # The replay token is not text, so its probability is given to the others.
    rows = [rows[place] for place in rank_indices(len(rows))]
    likelihoods = token_log_likelihoods(backbone, [row.tokens for row in rows], backbone.seed_token)
    bits = torch.zeros(len(texts), dtype=torch.float64)
    for row, nats in zip(rows, likelihoods, strict=True):
        bits[row.text] += (-nats[-row.counted :] / math.log(2)).sum()
    all_reduce_(bits)
    if bits.isnan().any():
        raise HoldfastError(NO_NUMBERS)
    return [
        Length(predicted + unpredicted, len(text.encode()), len(tokens))
        for text, tokens, predicted in zip(texts, tokenized, bits.tolist(), strict=True)
    ]


def bits_per_byte(texts: Sequence[Length]) -> float:
    """The bits of all texts divided by their bytes."""
    return sum(text.bits for text in texts) / sum(text.bytes for text in texts)


class _Window(NamedTuple):
    """text: its index; tokens: the model's input; counted: how many of the last tokens count."""

    text: int
    tokens: list[int]
    counted: int


def _windows(text: int, tokens: list[int], size: int) -> Iterator[_Window]:
    """Windows of at most ``size`` tokens; each ends half a window after the one before."""
    ends = [min(size, len(tokens))]
    while ends[-1] < len(tokens):
        ends.append(min(ends[-1] + max(size // 2, 1), len(tokens)))
    for before, end in pairwise([1, *ends]):
        if end > before:  # a one-token text without BOS has no predicted token
            yield _Window(text, tokens[max(end - size, 0) : end], end - before)


def tokens_of(backbone: Backbone, text: str) -> list[int]:
    """As :meth:`Backbone.tokenize`, without its warning for texts longer than the context."""
    encoding = backbone.tokenizer(text, add_special_tokens=False, verbose=False)
    ids: list[int] = encoding["input_ids"]
    return ids


def token_log_likelihoods(
    backbone: Backbone, sequences: Sequence[Sequence[int]], impossible: int | None = None
) -> list[Tensor]:
    """``log p(z_l | z_<l)`` in nats of every token but the first: one [length - 1] a sequence.

    float64 on the CPU, from a softmax in float32 at least. sequences: two or more token ids in
    each; impossible: a token whose probability is taken as 0.
    """
    by_row: dict[int, Tensor] = {}
    with torch.no_grad(), backbone.answering():
        for rows in batches_by_length([len(tokens) for tokens in sequences], _TOKENS_PER_BATCH):
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
            by_row |= zip(rows, torch.cat(pieces).split(list(batch.lengths)), strict=True)
    return [by_row[row] for row in range(len(sequences))]


def _log_likelihoods(
    backbone: Backbone, states: Tensor, targets: Tensor, impossible: int | None
) -> Tensor:
    """States [n, d] and targets [n] -> [n] float64, on the CPU."""
    logits = backbone.logits(states)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if impossible is not None:
        logits[:, impossible] = -torch.inf
    return -torch.nn.functional.cross_entropy(logits, targets, reduction="none").double().cpu()
