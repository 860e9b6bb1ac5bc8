"""Batched greedy decoding; a row is dropped as soon as it is finished."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch

from holdfast.backbone.generation.steps import steps_for
from holdfast.backbone.model import Backbone


def batches(lengths: Sequence[int], tokens_per_batch: int) -> Iterator[list[int]]:
    """Yield batches of indices of rows of similar length, longest first.

    A batch holds as many rows as fit into ``tokens_per_batch`` once padded, and at least one.
    """
    longest_first = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    while longest_first:
        rows = max(1, tokens_per_batch // max(1, lengths[longest_first[0]]))
        yield longest_first[:rows]
        longest_first = longest_first[rows:]


def decode_greedily(
    backbone: Backbone,
    prefixes: Sequence[Sequence[int]],
    limits: Sequence[int],
    finished: Callable[[int, list[int]], bool] | None = None,
    *,
    tokens_in_cache: int = 65536,
) -> list[list[int]]:
    """The tokens that greedy decoding appends to each prefix, its stop token included.

    The same as ``model.generate(do_sample=False)`` on each prefix alone, up to rounding. The
    model's own generation settings (penalties, forced tokens) do not apply.

    prefixes: token ids, none of them empty; limits: the most tokens to append to each; finished:
    called with a row's index and its tokens so far after each token; True ends it;
    tokens_in_cache: bounds the tokens of all rows decoded at once, at full length.
    """
    assert all(len(prefix) > 0 for prefix in prefixes), "nothing to continue"
    continuations: list[list[int]] = [[] for _ in prefixes]

    def is_over(row: int) -> bool:
        tokens = continuations[row]
        return (
            len(tokens) >= limits[row]
            or tokens[-1] in backbone.stop_tokens
            or (finished is not None and finished(row, tokens))
        )

    if (most := backbone.positions) is not None:
        limits = [min(limit, most - len(row)) for row, limit in zip(prefixes, limits, strict=True)]
    growing = [row for row, limit in enumerate(limits) if limit > 0]
    lengths = [len(prefixes[row]) + limits[row] for row in growing]
    with backbone.answering():
        for batch in batches(lengths, tokens_in_cache):
            rows = [growing[index] for index in batch]
            _decode_batch(backbone, prefixes, rows, continuations, is_over)
    return continuations


def _decode_batch(
    backbone: Backbone,
    prefixes: Sequence[Sequence[int]],
    rows: list[int],
    continuations: list[list[int]],
    is_over: Callable[[int], bool],
) -> None:
    """Append to the continuations of these rows until each is over."""
    steps = steps_for(backbone)
    tokens = steps.begin([prefixes[row] for row in rows])
    while True:
        tokens = steps(tokens).argmax(dim=-1)
        for row, token in zip(rows, tokens.tolist(), strict=True):
            continuations[row].append(token)
        going = [place for place, row in enumerate(rows) if not is_over(row)]
        if not going:
            return
        if len(going) < len(rows):
            rows = [rows[place] for place in going]
            order = torch.tensor(going, device=tokens.device)
            steps.keep(order)
            tokens = tokens[order]
