"""Batched greedy decoding; a row is dropped as soon as it is finished."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch

from holdfast.backbone.generation.cache import compacting
from holdfast.backbone.generation.steps import (
    Steps,
    positions_per_look,
    reserved_positions,
    steps_for,
)
from holdfast.backbone.model import Backbone


def batches(lengths: Sequence[int], tokens_per_batch: int) -> Iterator[list[int]]:
    """Indices grouped by similar length, for little padding.

    lengths: tokens of each row. A batch holds as many rows as fit into ``tokens_per_batch`` once
    padded to its longest, and at least one.
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

    prefixes: token ids, none of them empty; limits: the most tokens to append to each.
    finished: called with a row's index and its tokens so far after each token; True ends it.
    tokens_in_cache: bounds the rows decoded side by side, each at its longest; memory only.
    """
    assert all(len(prefix) > 0 for prefix in prefixes), "nothing to continue"
    continuations: list[list[int]] = [[] for _ in prefixes]

    def over(row: int) -> bool:
        tokens = continuations[row]
        return (
            len(tokens) >= limits[row]
            or tokens[-1] in backbone.stop_tokens
            or (finished is not None and finished(row, tokens))
        )

    wanted = [row for row, limit in enumerate(limits) if limit > 0]
    lengths = [reserved_positions(backbone, len(prefixes[row]) + limits[row]) for row in wanted]
    with backbone.answering():
        for batch in batches(lengths, tokens_in_cache):
            rows = [wanted[index] for index in batch]
            _decode_batch(backbone, prefixes, rows, limits, continuations, over)
    return continuations


def _decode_batch(
    backbone: Backbone,
    prefixes: Sequence[Sequence[int]],
    rows: list[int],
    limits: Sequence[int],
    continuations: list[list[int]],
    over: Callable[[int], bool],
) -> None:
    """Append to the continuations of these rows until each is over."""
    prompts = [prefixes[row] for row in rows]
    look = positions_per_look(backbone.device)
    # Most rows finish after a few tokens, so they are checked before a graph is recorded.
    steps = steps_for(backbone, eager=max(map(len, prompts)) - 1 + look)
    said = steps.begin(prompts)
    owners = list(rows)  # the row of each place; a spare place repeats another's row
    while True:
        places = {row: place for place, row in reversed(list(enumerate(owners)))}
        # Never beyond a limit, where a model may have no positions.
        ahead = min(look, *(limits[row] - len(continuations[row]) for row in places))
        spoken = []
        for _ in range(ahead):
            said = steps(said).argmax(dim=-1)
            spoken.append(said)
        tokens = torch.stack(spoken, dim=1).tolist()
        ended = {
            row
            for row, place in places.items()
            if _append(continuations[row], tokens[place], partial(over, row))
        }
        if len(ended) == len(places):
            return
        if ended:
            order = _without(ended, owners, places, steps)
            owners = [owners[place] for place in order]
            kept = torch.tensor(order, device=said.device)
            steps.keep(kept)
            said = said[kept]


def _without(ended: set[int], owners: list[int], places: dict[int, int], steps: Steps) -> list[int]:
    """The order of places that keeps every row but those that ended, and moves as few as possible.

    owners: the row of each place; places: the place of each row.
    """
    left = [place for row, place in places.items() if row not in ended]
    needed = torch.zeros(len(owners), dtype=torch.bool)
    needed[left] = True
    order = compacting(needed, steps.rows_for(len(left), len(owners))).tolist()
    return [left[0] if owners[place] in ended else place for place in order]


def _append(continuation: list[int], tokens: list[int], over: Callable[[], bool]) -> bool:
    """Append tokens until ``over`` says so; return whether it did."""
    for token in tokens:
        continuation.append(token)
        if over():
            return True
    return False
