"""Steps over the filled part of a cache of keys and values."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from holdfast.backbone.generation.cache import BlockCache, cache_for
from holdfast.backbone.model import Backbone

# Tokens in one pass over prompts, which bounds the memory of the states.
_PREFILLED_TOKENS = 16384


class CachedSteps:
    """Rows of tokens that grow by one token a call; a ``Steps``.

    length: filled positions of the cache, the same for all rows; padding: how many of them stand
    before each row's prompt, [rows], None for no padding.
    """

    def __init__(self, backbone: Backbone, cache: Cache | None = None) -> None:
        """cache: an empty one; that of the model's kind by default."""
        self._backbone = backbone
        self._cache = cache_for(backbone.model) if cache is None else cache
        self.length = 0
        self.padding: Tensor | None = None

    def __call__(self, ids: Tensor) -> Tensor:
        logits = self.next(ids)
        self.length += 1
        return logits

    @torch.no_grad()
    def begin(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        ids, self.padding = _left_padded(self._backbone, prompts)
        # By the model's own modules: the written out decoder takes one token a row.
        rows, length = len(ids), ids.shape[1] - 1
        at_once = max(1, _PREFILLED_TOKENS // rows)
        if not isinstance(self._cache, BlockCache):
            at_once = max(1, length)  # some recurrent layers take their prompt in one piece only
        for start in range(0, length, at_once):
            end = min(start + at_once, length)
            self._modules(ids[:, start:end])
            self.length = end
        return ids[:, -1]

    def keep(self, order: Tensor) -> None:
        self._cache.reorder_cache(order)  # type: ignore[arg-type]  # it says LongTensor
        if self.padding is not None:
            self.padding = self.padding[order]

    def rows_for(self, running: int, rows: int) -> int:
        return running

    def next(self, ids: Tensor) -> Tensor:
        """The logits [rows, vocabulary] of one step, whose position is not counted as filled."""
        backbone, room = self._backbone, self.length + 1
        if backbone.decoder is None:
            return backbone.logits(self._modules(ids[:, None])[:, -1])
        position = torch.tensor([self.length], device=ids.device)
        mask = None
        if self.padding is not None:
            position = position - self.padding
            slots = torch.arange(room, device=ids.device)
            mask = additive_mask(slots < self.padding[:, None], backbone.dtype)
        return backbone.logits(backbone.decoder.step(ids, self._cache, position, room, mask))

    def _modules(self, ids: Tensor) -> Tensor:
        """The states [rows, n, d] of ids [rows, n], which follow what is filled."""
        places: dict[str, Tensor] = {}
        if self.padding is not None:
            slots = torch.arange(self.length + ids.shape[1], device=ids.device)
            own = slots - self.padding[:, None]
            positions = own[:, self.length :].clamp(min=0)
            places = {"attention_mask": own >= 0, "position_ids": positions}
        outputs = self._backbone.model.base_model(
            input_ids=ids, past_key_values=self._cache, use_cache=True, **places
        )
        states: Tensor = outputs.last_hidden_state
        return states


def additive_mask(hidden: Tensor, dtype: torch.dtype) -> Tensor:
    """Minus infinity where ``hidden`` [rows, room] is true, else zero: [rows, 1, 1, room]."""
    mask = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device)
    return mask.masked_fill_(hidden, float("-inf"))[:, None, None]


def _left_padded(
    backbone: Backbone, prompts: Sequence[Sequence[int]]
) -> tuple[Tensor, Tensor | None]:
    """Left-padded ids, [rows, longest]; the padding of each row, [rows], None for no padding."""
    longest = max(map(len, prompts))
    before = [longest - len(prompt) for prompt in prompts]
    rows = [[backbone.pad_token] * n + list(one) for n, one in zip(before, prompts, strict=True)]
    padding = torch.tensor(before, device=backbone.device) if any(before) else None
    return torch.tensor(rows, device=backbone.device), padding
