"""Bits per byte of plain text: how well a model still knows the language itself.

The measure means something for a model of any size, and has no answers that could be formatted
wrongly. It does not depend on how a tokenizer cuts the text, so that models can be compared.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from holdfast.backbone.generation.greedy import batches
from holdfast.backbone.model import Backbone
from holdfast.backbone.sequences import collate
from holdfast.core.errors import HoldfastError

WINDOW = 512  # tokens of a window at most, fewer where the model has fewer positions
NO_NUMBERS = (
    "this model's probabilities are not numbers (NaN): its weights are damaged, or its training "
    "has diverged; choose another model or an earlier boundary"
)
_TOKENS_PER_BATCH = 4096
_POSITIONS_AT_ONCE = 1024  # rows of logits at a time
_HEADING = re.compile(r"^= (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Passage:
    """A text that is measured by itself. id: the same in every run, such as text/bread."""

    id: str
    text: str


class Length(NamedTuple):
    """How long a model makes a text. bits: of all its tokens; bytes: of its UTF-8; tokens."""

    bits: float
    bytes: int
    tokens: int


def everyday_passages() -> list[Passage]:
    """Ten short texts about everyday matters, which come with the package: 9 kB of English."""
    text = (files("holdfast.evaluation") / "everyday.txt").read_text(encoding="utf-8")
    _, *parts = _HEADING.split(text)
    return [
        Passage(f"text/{title.lower().replace(' ', '_')}", body.strip())
        for title, body in zip(parts[::2], parts[1::2], strict=True)
    ]


def settings(window: int = WINDOW) -> dict[str, Any]:
    """What the bits of a text depend on besides the model and the text."""
    return {"window": window, "overlap": 0.5}


def lengths(backbone: Backbone, texts: Sequence[str], window: int = WINDOW) -> list[Length]:
    """The length of each text under a model, in order; every text stands alone.

    Every token costs minus log2 of its probability. The first is predicted after the token that
    begins a text, or else the one that ends it; in a vocabulary without either it costs log2 of
    the size. A text longer than a window is read in windows that overlap by half: the tokens of
    the first are all counted, and of each later window those that no earlier one had, so that
    each has at least half a window before it. The replay token is no text: the probabilities
    are those of the vocabulary without it.

    window: tokens that are read together, at most; the model's positions also bound it.
    Raises HoldfastError for a text without tokens, and for a model that gives no numbers.
    """
    limit = getattr(backbone.model.config, "max_position_embeddings", None) or window
    window = min(window, limit)
    assert window >= 2, "a token and one that follows it"
    rows: list[_Window] = []
    unpredicted: list[float] = []
    tokenized = [_tokens(backbone, text) for text in texts]
    for place, tokens in enumerate(tokenized):
        if not tokens:
            raise HoldfastError("a text without tokens has no bits per byte; remove it")
        first = _first(backbone)
        unpredicted.append(math.log2(_vocabulary(backbone)) if first is None else 0.0)
        rows += _windows(place, tokens if first is None else [first, *tokens], window)
    # Batches of whole texts would not be even; batches of windows are, and few are padded.
    bits = torch.zeros(len(texts), dtype=torch.float64)
    with backbone.answering():
        for chosen in batches([len(row.tokens) for row in rows], _TOKENS_PER_BATCH):
            part = [rows[index] for index in chosen]
            for row, value in zip(part, _bits(backbone, part), strict=True):
                bits[row.text] += value
    if bits.isnan().any():
        raise HoldfastError(NO_NUMBERS)
    return [
        Length(predicted + extra, len(text.encode()), len(tokens))
        for text, tokens, predicted, extra in zip(
            texts, tokenized, bits.tolist(), unpredicted, strict=True
        )
    ]


def bits_per_byte(found: Sequence[Length]) -> float:
    """The bits of all texts by their bytes."""
    return sum(one.bits for one in found) / sum(one.bytes for one in found)


class _Window(NamedTuple):
    """text: which one; tokens: what is read; counted: how many of the last ones are counted."""

    text: int
    tokens: list[int]
    counted: int


def _windows(text: int, tokens: list[int], size: int) -> Iterator[_Window]:
    """Windows of at most ``size`` tokens; each ends half a window after the one before."""
    ends = [min(size, len(tokens))]
    while ends[-1] < len(tokens):
        ends.append(min(ends[-1] + max(size // 2, 1), len(tokens)))
    for before, end in pairwise([1, *ends]):
        if end > before:  # a text of one token that nothing stands before has no prediction
            yield _Window(text, tokens[max(end - size, 0) : end], end - before)


def _bits(backbone: Backbone, rows: Sequence[_Window]) -> list[float]:
    """The bits of the counted tokens of each window."""
    batch = collate([row.tokens for row in rows], backbone.device)
    states = backbone.states(batch)[0]
    pieces = [
        _token_bits(backbone, states[start : start + _POSITIONS_AT_ONCE], targets)
        for start, targets in zip(
            range(0, len(states), _POSITIONS_AT_ONCE),
            batch.targets.split(_POSITIONS_AT_ONCE),
            strict=True,
        )
    ]
    found = torch.cat(pieces).split(list(batch.lengths))
    return [float(part[-row.counted :].sum()) for part, row in zip(found, rows, strict=True)]


def _token_bits(backbone: Backbone, states: Tensor, targets: Tensor) -> Tensor:
    """Minus log2 of the probability of each target: [n, d], [n] -> [n] float64, on the host."""
    logits = backbone.logits(states)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if backbone.seed_token is not None:
        logits[:, backbone.seed_token] = -torch.inf
    nats = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
    return nats.double().cpu() / math.log(2)


def _tokens(backbone: Backbone, text: str) -> list[int]:
    """As :meth:`Backbone.tokenize`, without a warning that a text is longer than the positions."""
    found = backbone.tokenizer(text, add_special_tokens=False, verbose=False)
    ids: list[int] = found["input_ids"]
    return ids


def _first(backbone: Backbone) -> int | None:
    """The token before a text."""
    begin: int | None = backbone.tokenizer.bos_token_id
    return backbone.eos_token if begin is None else begin


def _vocabulary(backbone: Backbone) -> int:
    return len(backbone.tokenizer) - (backbone.seed_token is not None)
