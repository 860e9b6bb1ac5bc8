"""Greedy decoding: many continuations at once, each dropped as soon as nobody needs more of it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from holdfast.backbone.cache import cache_for, compacting


class Decodable(Protocol):
    """What decoding asks of a backbone."""

    @property
    def model(self) -> Any: ...  # a causal LM of transformers
    @property
    def device(self) -> torch.device: ...
    @property
    def pad_token(self) -> int: ...
    @property
    def stop_tokens(self) -> frozenset[int]: ...


@contextlib.contextmanager
def evaluating(model: torch.nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; every module's own mode is restored afterwards."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module in training:
            module.training = True


def batches(lengths: Sequence[int], tokens_per_batch: int) -> Iterator[list[int]]:
    """Indices grouped by similar length, so that little of a batch is padding.

    lengths: tokens of each row. A batch holds as many rows as fit into ``tokens_per_batch`` once
    padded to its longest, and at least one.
    """
    longest_first = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    while longest_first:
        rows = max(1, tokens_per_batch // max(1, lengths[longest_first[0]]))
        yield longest_first[:rows]
        longest_first = longest_first[rows:]


def decode_greedily(
    backbone: Decodable,
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
    lengths = [len(prefixes[row]) + limits[row] for row in wanted]
    with evaluating(backbone.model):
        for batch in batches(lengths, tokens_in_cache):
            rows = [wanted[index] for index in batch]
            _decode_batch(backbone, prefixes, rows, continuations, over)
    return continuations


def _decode_batch(
    backbone: Decodable,
    prefixes: Sequence[Sequence[int]],
    rows: list[int],
    continuations: list[list[int]],
    over: Callable[[int], bool],
) -> None:
    """Append to the continuations of these rows until each is over."""
    ids, mask = _left_padded(backbone, [prefixes[row] for row in rows])
    # A prefix starts at position 0, wherever its padding ends.
    positions = (mask.cumsum(dim=1) - 1).clamp(min=0)
    cache = cache_for(backbone.model)
    while True:
        output = backbone.model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        ids = output.logits[:, -1:].argmax(dim=-1)  # [rows, 1]
        for row, token in zip(rows, ids.flatten().tolist(), strict=True):
            continuations[row].append(token)
        stays = [not over(row) for row in rows]
        if not any(stays):
            return
        mask = torch.cat([mask, mask.new_ones(len(rows), 1)], dim=1)
        positions = positions[:, -1:] + 1
        if not all(stays):
            order = compacting(torch.tensor(stays), sum(stays))
            rows = [rows[index] for index in order.tolist()]
            order = order.to(ids.device)
            cache.batch_select_indices(order)
            ids, mask, positions = ids[order], mask[order], positions[order]


def _left_padded(backbone: Decodable, prefixes: list[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Ids and mask [rows, longest], the real tokens at the right end."""
    longest = max(map(len, prefixes))
    ids = [[backbone.pad_token] * (longest - len(prefix)) + list(prefix) for prefix in prefixes]
    mask = [[0] * (longest - len(prefix)) + [1] * len(prefix) for prefix in prefixes]
    return torch.tensor(ids, device=backbone.device), torch.tensor(mask, device=backbone.device)
