"""Causal attention over sequences of one length, forwards and backwards.

On a CPU short sequences are a few small products, for which the fused kernel takes twice as long as
plain matrix products. Everything else uses the fused kernel.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

# Up to this length plain products were faster on a CPU; at 64 the two were equal.
SHORT = 48


class Attended(NamedTuple):
    """The output, [batch, heads, length, d], and what the backward pass needs.

    parts: queries, keys and values; with the fused kernel these are leaves and ``out`` has their
    graph. weights: of plain products, [batch x kv heads, group x length, length].
    """

    out: Tensor
    parts: tuple[Tensor, Tensor, Tensor]
    weights: Tensor | None


def attend(
    query: Tensor, key: Tensor, value: Tensor, scale: float, *, keep: bool, short: bool = True
) -> Attended:
    """Softmax of the scaled products, of each position with itself and those before it.

    query: [batch, heads, length, d]; key, value: [batch, kv heads, length, d], each shared by a
    group of neighbouring heads; keep: what :func:`attend_backward` needs; short: whether short
    sequences may take plain products.
    """
    if short and query.device.type == "cpu" and query.shape[2] <= SHORT:
        return _written_out(query, key, value, scale)
    parts = tuple(one.detach().requires_grad_(keep) for one in (query, key, value))
    with torch.set_grad_enabled(keep):
        out = F.scaled_dot_product_attention(
            parts[0], parts[1], parts[2], is_causal=True, scale=scale, enable_gqa=True
        )
    return Attended(out, (parts[0], parts[1], parts[2]), None)


def attend_backward(
    kept: Attended, upstream: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of queries, keys and values, from that of the output."""
    if kept.weights is None:
        into = torch.autograd.grad(kept.out, kept.parts, upstream, retain_graph=True)
        return into[0], into[1], into[2]
    query, key, value = kept.parts
    shape, weights = upstream.shape, kept.weights
    into_out = upstream.reshape(query.shape)
    into_value = weights.transpose(1, 2) @ into_out
    into_weights = into_out @ value.transpose(1, 2)
    # Through the softmax: p (g - sum p g).
    weighted = into_weights.mul_(weights)
    scores = torch.addcmul(weighted, weights, weighted.sum(-1, keepdim=True), value=-1).mul_(scale)
    into_query, into_key = scores @ key, scores.transpose(1, 2) @ query
    narrow = (shape[0], -1, *shape[2:])
    return into_query.view(shape), into_key.view(narrow), into_value.view(narrow)


def _written_out(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Attended:
    batch, heads, length, width = query.shape
    pairs = batch * key.shape[1]
    q = query.reshape(pairs, -1, width)  # the heads of a group share their key
    k, v = (one.reshape(pairs, length, width) for one in (key, value))
    later = _later(length, heads // key.shape[1], q.dtype).expand(pairs, -1, -1)
    scores = torch.baddbmm(later, q, k.transpose(1, 2), alpha=scale)
    weights = scores.softmax(dim=-1)
    return Attended((weights @ v).view(query.shape), (q, k, v), weights)


@cache
def _later(length: int, group: int, dtype: torch.dtype) -> Tensor:
    """The causal mask, minus infinity at later positions: [group x length, length]."""
    square = torch.full((length, length), float("-inf"), dtype=dtype, device="cpu")
    return square.triu(1).repeat(group, 1)
