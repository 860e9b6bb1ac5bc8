"""Greedy decoding, and the step of all decoding: rows of tokens that grow by one token a call.

A step uses the model's own cache of keys and values, unless that fails with rows of different
lengths or with rows that are dropped or repeated.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from holdfast.model.backbone import Backbone
from holdfast.model.sequences import batches_by_length, pad_right

logger = logging.getLogger(__name__)

_PREFILLED_TOKENS = 16384  # in one pass over prompts; bounds the memory of hidden states
_TOLERANCE = 0.1
# What models raise when they cannot reorder or drop rows.
_REFUSALS = (AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
# Whether each probed model's cache can be used; see `can_cache`.
_can_cache: WeakKeyDictionary[Backbone, bool] = WeakKeyDictionary()


def steps_for(backbone: Backbone) -> Steps:
    """The fastest steps that a backbone allows."""
    return CachedSteps(backbone) if can_cache(backbone) else UncachedSteps(backbone)


def can_cache(backbone: Backbone) -> bool:
    """Whether cached steps equal uncached ones; probed once per model, with a warning if not."""
    answer = _can_cache.get(backbone)
    if answer is None:
        answer = _can_cache[backbone] = _cached_equals_uncached(backbone)
        if not answer:
            kind = type(backbone.model).__name__
            logger.warning("%s generates without a cache, slowly: with one it errs", kind)
    return answer


@torch.no_grad()
def _cached_equals_uncached(backbone: Backbone) -> bool:
    """Compare both steps on rows that are ragged, reordered, repeated and dropped."""
    probed = []
    for kind in (UncachedSteps, CachedSteps):
        steps: Steps = kind(backbone)
        try:
            logits = [steps(steps.begin([[1, 2, 3, 4, 5], [6], [7, 8, 9]]))]
            for order, ids in (([1, 0, 1], [2, 4, 6]), ([2, 1], [8, 1]), ([0, 1], [3, 5])):
                steps.keep(torch.tensor(order, device=backbone.device))
                logits.append(steps(torch.tensor(ids, device=backbone.device)))
        except _REFUSALS:
            if kind is UncachedSteps:
                raise
            return False
        probed.append(torch.cat(logits))
    uncached, cached = (logits.float() for logits in probed)
    # The spread of the difference, relative to that of the logits, in the worst row.
    return bool(((cached - uncached).std(dim=1) / uncached.std(dim=1)).max() < _TOLERANCE)


def cache_of(model: Any) -> DynamicCache:
    """An empty cache of the model's kind."""
    return DynamicCache(config=model.config)


def keeps_keys_alone(model: Any) -> bool:
    """Whether all layers cache the keys and values of all tokens: no windows, no recurrence."""
    return {type(layer) for layer in cache_of(model).layers} == {DynamicLayer}


def bytes_per_token(model: Any) -> int:
    """The bytes of one token of one row in the cache; an upper bound if windows slide."""
    config = model.config.get_text_config()  # models that read images have one of images, too
    heads = config.num_attention_heads
    key_heads = getattr(config, "num_key_value_heads", None) or heads
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    return int(2 * config.num_hidden_layers * key_heads * width * model.dtype.itemsize)


class CachedSteps:
    """Rows of tokens that grow by one token a call, with the model's cache.

    length: filled positions of the cache, the same for all rows; padding: how many of them are
    padding before each row's prompt, [rows]; None if no row has any.
    """

    def __init__(self, backbone: Backbone) -> None:
        self._backbone = backbone
        self._cache = cache_of(backbone.model)
        self.length = 0
        self.padding: Tensor | None = None

    @torch.no_grad()
    def __call__(self, ids: Tensor) -> Tensor:
        """Append ids [rows]; return the logits of what follows, [rows, vocabulary]."""
        return self._backbone.logits(self._states(ids[:, None])[:, -1])

    @torch.no_grad()
    def begin(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        """Prefill all but each prompt's last token; once, before any call.

        prompts: token ids, a row each, none of them empty. Returns their last tokens, [rows], for
        the first call.
        """
        ids, self.padding = _left_padded(self._backbone, prompts)
        rows, length = len(ids), ids.shape[1] - 1
        at_once = max(1, _PREFILLED_TOKENS // rows)
        if not keeps_keys_alone(self._backbone.model):
            at_once = max(1, length)  # some recurrent layers read a prompt in one piece only
        for start in range(0, length, at_once):
            self._states(ids[:, start : min(start + at_once, length)])
        return ids[:, -1]

    def keep(self, order: Tensor) -> None:
        """Reorder: the new row i is the old row ``order[i]``; rows may be dropped or repeated."""
        self._cache.reorder_cache(order)
        if self.padding is not None:
            self.padding = self.padding[order]

    def _states(self, ids: Tensor) -> Tensor:
        """The hidden states [rows, n, d] of ids [rows, n], which are appended to the cache."""
        places: dict[str, Tensor] = {}
        if self.padding is not None:
            slots = torch.arange(self.length + ids.shape[1], device=ids.device)
            positions = slots - self.padding[:, None]  # negative where a row is padded
            places = {
                "attention_mask": positions >= 0,
                "position_ids": positions[:, self.length :].clamp(min=0),
            }
        outputs = self._backbone.model.base_model(
            input_ids=ids, past_key_values=self._cache, use_cache=True, **places
        )
        self.length += ids.shape[1]
        states: Tensor = outputs.last_hidden_state
        return states


class UncachedSteps:
    """The same by passes over whole rows: slow, and correct for every causal model."""

    def __init__(self, backbone: Backbone) -> None:
        self._backbone = backbone
        self._rows: list[list[int]] = []

    def __call__(self, ids: Tensor) -> Tensor:
        before = self._rows or [[] for _ in ids]
        self._rows = [[*row, token] for row, token in zip(before, ids.tolist(), strict=True)]
        # Attention is causal: padding on the right does not change a row's last token.
        padded, mask = pad_right(self._rows, self._backbone.pad_token, ids.device)
        states = self._backbone.hidden(padded)
        rows = torch.arange(len(ids), device=ids.device)
        return self._backbone.logits(states[rows, mask.sum(dim=1) - 1])

    def begin(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        self._rows = [list(prompt[:-1]) for prompt in prompts]
        return torch.tensor([prompt[-1] for prompt in prompts], device=self._backbone.device)

    def keep(self, order: Tensor) -> None:
        self._rows = [self._rows[row] for row in order.tolist()]


Steps = CachedSteps | UncachedSteps


def _left_padded(
    backbone: Backbone, prompts: Sequence[Sequence[int]]
) -> tuple[Tensor, Tensor | None]:
    """Left-padded ids [rows, longest], and each row's padding [rows], None if no row has any."""
    ids = pad_sequence(
        [torch.tensor(prompt) for prompt in prompts],
        batch_first=True,
        padding_value=backbone.pad_token,
        padding_side="left",
    )
    padding = ids.shape[1] - torch.tensor([len(prompt) for prompt in prompts])
    return ids.to(backbone.device), padding.to(backbone.device) if padding.any() else None


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
        for batch in batches_by_length(lengths, tokens_in_cache):
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
