"""Nucleus sampling from a one-token prompt, reproducible at any batch size.

The noise of a draw belongs to (sample, position): one table of uniform numbers decides every
token, so neither the batch size nor the samples beside it change what is drawn.
"""

from __future__ import annotations

from typing import Any

import torch
from pydantic import Field
from torch import Tensor
from transformers import DynamicCache

from holdfast.backbone.load import Backbone
from holdfast.core.config import Config
from holdfast.core.seeding import generator

# Tokens ranked at first; a nucleus that turns out wider is ranked in full.
_FIRST_RANKED = 256


class Sampling(Config):
    """How fast to sample; what is sampled belongs to the data anchor."""

    batch: int = Field(512, ge=1)  # sequences generated side by side


def sample_continuations(
    backbone: Backbone,
    prompt_token: int,
    count: int,
    *,
    seed: int,
    purpose: tuple[str | int, ...],
    temperature: float,
    top_p: float,
    top_k: int | None,
    max_new_tokens: int,
    batch: int,
) -> list[list[int]]:
    """Draw ``count`` continuations of one token; each ends with its stop token, if it drew one.

    temperature > 0 (tau_G); top_p in (0, 1]; top_k: keep at most so many tokens, None for all;
    max_new_tokens: L_max, tokens. The draws are named by (seed, purpose).
    Source: eq. app-replay-generate.
    """
    source = generator(seed, *purpose)
    noise = torch.rand(count, max_new_tokens, generator=source, dtype=torch.float32)
    noise = noise.to(backbone.device)
    drawn: list[list[int]] = []
    for start in range(0, count, batch):
        rows = noise[start : start + batch]
        drawn += _sample_batch(backbone, prompt_token, rows, temperature, top_p, top_k)
    return drawn


@torch.no_grad()
def _sample_batch(
    backbone: Backbone,
    prompt_token: int,
    noise: Tensor,
    temperature: float,
    top_p: float,
    top_k: int | None,
) -> list[list[int]]:
    samples, length = noise.shape
    tokens = torch.full((samples, length), -1, device=backbone.device)
    stops = torch.tensor(sorted(backbone.stop_tokens), device=backbone.device)
    running = torch.arange(samples, device=backbone.device)
    current = torch.full((samples, 1), prompt_token, device=backbone.device)
    cache = DynamicCache(config=backbone.model.config)
    for position in range(length):
        logits = backbone.logits(_advance(backbone, current, cache))
        drawn = nucleus_sample(logits.float() / temperature, noise[running, position], top_p, top_k)
        tokens[running, position] = drawn
        goes_on = ~torch.isin(drawn, stops)
        if not bool(goes_on.all()):
            kept = goes_on.nonzero().squeeze(1)
            if len(kept) == 0:
                break
            running, drawn = running[kept], drawn[kept]
            cache.batch_select_indices(kept)
        current = drawn[:, None]
    return [[token for token in row if token >= 0] for row in tokens.tolist()]


def _advance(backbone: Backbone, ids: Tensor, cache: Any) -> Tensor:
    """Feed one token a row; return the last hidden states, [rows, d]."""
    outputs = backbone.model.base_model(input_ids=ids, past_key_values=cache, use_cache=True)
    states: Tensor = outputs.last_hidden_state[:, -1]
    return states


def nucleus_sample(logits: Tensor, noise: Tensor, top_p: float, top_k: int | None) -> Tensor:
    """One token a row from the smallest set of likeliest tokens whose mass reaches ``top_p``.

    logits: [rows, vocabulary], already divided by the temperature; noise: [rows], uniform in
    [0, 1). The inverse of the renormalised cumulative distribution, tokens in order of
    probability, is taken at the noise. With ``top_k`` only the k likeliest tokens take part.
    """
    vocabulary = logits.shape[1]
    if top_k is not None and top_k < vocabulary:
        threshold = logits.topk(top_k, dim=1).values[:, -1:]
        logits = logits.masked_fill(logits < threshold, float("-inf"))
    probabilities = logits.softmax(dim=1)
    ranked = min(_FIRST_RANKED, vocabulary)
    drawn, inside = _invert(probabilities, noise, top_p, ranked)
    if not bool(inside.all()):
        wide = (~inside).nonzero().squeeze(1)
        drawn[wide], _ = _invert(probabilities[wide], noise[wide], top_p, vocabulary)
    return drawn


def _invert(
    probabilities: Tensor, noise: Tensor, top_p: float, ranked: int
) -> tuple[Tensor, Tensor]:
    """Draw among the ``ranked`` likeliest; also say in which rows they hold the whole nucleus."""
    if ranked < probabilities.shape[1]:
        mass, order = probabilities.topk(ranked, dim=1)
    else:
        mass, order = probabilities.sort(dim=1, descending=True)
    cumulative = mass.cumsum(dim=1)
    inside = (cumulative[:, -1] >= top_p) | (ranked == probabilities.shape[1])
    # A token belongs to the nucleus while the mass before it is below top_p; the first always,
    # one of no mass never, even where the sum of all masses is rounded to less than one.
    nucleus = ((cumulative - mass) < top_p) & (mass > 0)
    size = nucleus.sum(dim=1, keepdim=True).clamp(min=1)
    total = cumulative.gather(1, size - 1)
    place = torch.searchsorted(cumulative, noise[:, None] * total, right=True)
    place = torch.minimum(place, size - 1)
    return order.gather(1, place).squeeze(1), inside
