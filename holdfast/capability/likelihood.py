"""Log-probabilities of candidate next tokens after many prompts with a common prefix."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from holdfast.backbone.generation.greedy import batches
from holdfast.backbone.generation.steps import cache_of, can_cache, keeps_keys_alone
from holdfast.backbone.model import Backbone
from holdfast.backbone.sequences import pad_right
from holdfast.core.errors import HoldfastError
from holdfast.evaluation.text import NO_NUMBERS

_TOKENS_PER_BATCH = 8192


def next_token_log_probabilities(
    backbone: Backbone,
    prompts: Sequence[Sequence[int]],
    candidates: Sequence[int],
    tokens_per_batch: int = _TOKENS_PER_BATCH,
) -> Iterator[tuple[int, list[float]]]:
    """Yield (place, natural log-probability of each candidate after that prompt), longest first.

    The common prefix of all prompts passes through the model once, then the rest of each prompt;
    prompts are padded on the right only, so that every token has its own position.

    prompts: token ids, none of them empty; candidates: token ids; tokens_per_batch: of whole
    prompts, affects memory only.
    Raises HoldfastError when the model's logits are NaN.
    """
    shared = _shared(backbone, prompts)
    with backbone.answering():
        prefix = _prefix(backbone, list(prompts[0][:shared])) if shared else None
    for rows in batches([len(prompt) for prompt in prompts], tokens_per_batch):
        # Entered for each batch: the caller must not run in this mode between yields.
        with backbone.answering():
            found = _last(backbone, prefix, [prompts[row][shared:] for row in rows], candidates)
        yield from zip(rows, found.tolist(), strict=True)


def _shared(backbone: Backbone, prompts: Sequence[Sequence[int]]) -> int:
    """The length of the prompts' common prefix, at least one token short of each prompt.

    0 for a model whose cache holds more than keys and values, or fails :func:`can_cache`.
    """
    if not prompts or not keeps_keys_alone(backbone.model):
        return 0
    if not can_cache(backbone):
        return 0
    # The common prefix of the first and last in lexicographic order is that of all prompts.
    ordered = sorted(map(list, prompts))
    pairs = zip(ordered[0], ordered[-1], strict=False)
    shortest = min(map(len, prompts))
    common = next((place for place, (one, other) in enumerate(pairs) if one != other), shortest)
    return min(common, shortest - 1)


def _prefix(backbone: Backbone, tokens: list[int]) -> Any:
    cache = cache_of(backbone.model)
    ids = torch.tensor([tokens], device=backbone.device)
    backbone.model.base_model(input_ids=ids, past_key_values=cache, use_cache=True)
    return cache


def _last(
    backbone: Backbone, prefix: Any, rests: list[Sequence[int]], candidates: Sequence[int]
) -> Tensor:
    """The log-probabilities after the last token of each row: [rows, candidates]."""
    ids, mask = pad_right(rests, backbone.pad_token, backbone.device)
    if prefix is None:
        hidden = backbone.hidden(ids)
    else:
        cache = copy.deepcopy(prefix)
        rows = torch.zeros(len(rests), dtype=torch.long, device=ids.device)
        cache.reorder_cache(rows)
        # No real token attends to padding on its right, so the causal mask is enough.
        hidden = backbone.model.base_model(
            input_ids=ids, past_key_values=cache, use_cache=True
        ).last_hidden_state
    last = mask.sum(dim=1) - 1
    logits = backbone.logits(hidden[torch.arange(len(rests), device=ids.device), last])
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(dim=-1)
    if wide.isnan().any():
        raise HoldfastError(NO_NUMBERS)
    return wide[:, torch.tensor(list(candidates), device=ids.device)].cpu()
