"""Nucleus sampling: one token a row from the smallest set of likeliest tokens of a given mass.

On a CPU the largest masses are sorted. On a GPU sorting is slow: at temperature 1.5 many a nucleus
holds nearly all of 150,000 tokens. There several candidates are drawn from the whole distribution
at once, and the first that lies in the nucleus is taken; the host never waits for the device.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

# Tokens ranked first; a wider nucleus is ranked in full.
_FIRST_RANKED = 256
# Candidates serve nuclei of at least this mass: a smaller one takes more of them.
_CANDIDATES_FROM = 0.5
_WHOLE = 2.0**52  # candidates at a mass of one
_NEVER = 1e-9  # the probability that all candidates of a draw lie outside


def uniforms_a_draw(device: torch.device, top_p: float) -> tuple[int, ...]:
    """The shape of the uniform numbers that one draw takes on a device: () for one."""
    if device.type == "cpu" or top_p < _CANDIDATES_FROM:
        return ()
    if top_p >= 1:
        return (1,)
    needed = math.log(_NEVER) / math.log(1 - top_p)
    return (2 ** math.ceil(math.log2(needed + 1)) - 1,)


def nucleus_sample(
    logits: Tensor, noise: Tensor, top_p: float, top_k: int | None, *, fused: bool = False
) -> Tensor:
    """One token a row from the smallest set of likeliest tokens whose mass reaches ``top_p``.

    logits: [rows, vocabulary], already divided by the temperature; noise: uniform in [0, 1), of
    the shape [rows, *uniforms_a_draw]. With one number a draw the inverse of the renormalised
    cumulative distribution, tokens in order of probability, is taken at it; with several, see
    :func:`_draw_by_candidates`, whose sums ``fused`` compiles. With ``top_k`` only the k likeliest
    tokens take part.
    """
    vocabulary = logits.shape[1]
    if top_k is not None and top_k < vocabulary:
        threshold = logits.topk(top_k, dim=1).values[:, -1:]
        logits = logits.masked_fill(logits < threshold, float("-inf"))
    probabilities = logits.softmax(dim=1)
    if noise.dim() == 2:
        return _draw_by_candidates(probabilities, noise, top_p, _compiled() if fused else _ahead)
    draw = _draw_by_value if probabilities.device.type == "cpu" else _draw_by_rank
    ranked = min(_FIRST_RANKED, vocabulary)
    drawn, inside = draw(probabilities, noise, top_p, ranked)
    if not bool(inside.all()):
        wide = (~inside).nonzero().squeeze(1)
        drawn[wide], _ = draw(probabilities[wide], noise[wide], top_p, vocabulary)
    return drawn


def _draw_by_candidates(
    probabilities: Tensor, noise: Tensor, top_p: float, ahead: Callable[..., Tensor]
) -> Tensor:
    """The first of several draws from the whole distribution that lies in the nucleus.

    noise: [rows, k] with k + 1 a power of two. A token is inside while the likelier ones, and
    those of equal mass before it in the vocabulary, hold less than ``top_p``. So the likeliest
    candidates are inside up to some place, found by bisection: log2(k + 1) sums over the
    vocabulary, and no sorting of it. If all lie outside, the likeliest token is taken.
    """
    cumulative = _cumulative(probabilities)
    total = cumulative[:, -1:].contiguous()
    candidates = torch.searchsorted(cumulative, noise * total, right=True)
    # Tokens of no mass may follow the last one that counts.
    candidates = torch.minimum(candidates, torch.searchsorted(cumulative, total))
    if top_p >= 1:
        return candidates[:, 0]
    by_token = candidates.sort(dim=1)
    by_mass = probabilities.gather(1, by_token.values).sort(dim=1, descending=True, stable=True)
    tokens = by_token.values.gather(1, by_mass.indices)
    vocabulary = torch.arange(probabilities.shape[1], device=probabilities.device)
    inside = torch.zeros_like(tokens[:, :1])  # so many of the likeliest are known to be inside
    step = (noise.shape[1] + 1) // 2
    while step:
        place = inside + step - 1
        mass, token = by_mass.values.gather(1, place), tokens.gather(1, place)
        before = ahead(probabilities, vocabulary, mass, token)
        inside = torch.where(before < top_p, inside + step, inside)
        step //= 2
    turn = by_token.indices.gather(1, by_mass.indices)  # of each, likeliest first, in the drawing
    many = noise.shape[1]
    ranks = torch.arange(many, device=noise.device)
    first = turn.masked_fill(ranks >= inside, many).amin(dim=1, keepdim=True)
    drawn = candidates.gather(1, first.clamp(max=many - 1))
    return torch.where(first < many, drawn, probabilities.argmax(dim=1, keepdim=True)).squeeze(1)


def _ahead(probabilities: Tensor, vocabulary: Tensor, mass: Tensor, token: Tensor) -> Tensor:
    """What likelier tokens than one a row, and equal ones before it, hold together: [rows, 1]."""
    equal = (probabilities == mass) & (vocabulary < token)
    counted = torch.where((probabilities > mass) | equal, probabilities, 0.0)
    return counted.sum(dim=1, keepdim=True)


@cache
def _compiled() -> Callable[..., Tensor]:
    return torch.compile(_ahead, dynamic=True)


def _draw_by_value(
    probabilities: Tensor, noise: Tensor, top_p: float, ranked: int
) -> tuple[Tensor, Tensor]:
    """:func:`_draw_by_rank` by NumPy's vectorised sort, of the masses alone.

    Only then is the drawn token looked up; sorting indices too takes twenty times as long.
    """
    rows = torch.arange(len(probabilities))
    masses = probabilities.neg().numpy()
    if ranked < probabilities.shape[1]:
        masses.partition(ranked - 1, axis=1)
        masses = masses[:, :ranked].copy()
    masses.sort(axis=1)
    negative = torch.from_numpy(masses)
    mass = negative.neg()
    cumulative = _cumulative(mass)
    place = _place(cumulative, noise, top_p)
    value = mass.gather(1, place)
    owners, tokens = (probabilities == value).nonzero(as_tuple=True)
    # Tokens of equal mass rank in the order of the vocabulary.
    among_equals = place - torch.searchsorted(negative, -value)
    first = torch.searchsorted(owners, rows)
    drawn = tokens[first + among_equals.squeeze(1)]
    return drawn, _holds(cumulative, probabilities, top_p)


def _draw_by_rank(
    probabilities: Tensor, noise: Tensor, top_p: float, ranked: int
) -> tuple[Tensor, Tensor]:
    """Draw among the ``ranked`` likeliest; also say in which rows they hold the whole nucleus."""
    if ranked < probabilities.shape[1]:
        mass, order = probabilities.topk(ranked, dim=1)
    else:
        mass, order = probabilities.sort(dim=1, descending=True, stable=True)
    cumulative = _cumulative(mass)
    drawn = order.gather(1, _place(cumulative, noise, top_p)).squeeze(1)
    return drawn, _holds(cumulative, probabilities, top_p)


def _cumulative(masses: Tensor) -> Tensor:
    """Cumulative sums of each row, in integers where deterministic algorithms are asked for.

    On a GPU torch has no deterministic one in floats; in integers the order does not matter.
    """
    if masses.device.type == "cpu" or not torch.are_deterministic_algorithms_enabled():
        return masses.cumsum(dim=1)
    whole = (masses.double() * _WHOLE).round().long().cumsum(dim=1)
    return (whole.double() / _WHOLE).to(masses.dtype)


def _holds(cumulative: Tensor, probabilities: Tensor, top_p: float) -> Tensor:
    """In which rows the ranked tokens hold the whole nucleus: [rows]."""
    return (cumulative[:, -1] >= top_p) | (cumulative.shape[1] == probabilities.shape[1])


def _place(cumulative: Tensor, noise: Tensor, top_p: float) -> Tensor:
    """The drawn rank [rows, 1], from the cumulative masses in order of rank."""
    bound = torch.full_like(noise[:, None], top_p, dtype=cumulative.dtype)
    # The last of the nucleus is the first whose sum reaches top_p, even where the sum of all is
    # rounded to less than one; then tokens of no mass may follow, which never take part.
    last = torch.searchsorted(cumulative, bound).clamp_(max=cumulative.shape[1] - 1)
    total = cumulative.gather(1, last)
    last = torch.searchsorted(cumulative, total)
    place = torch.searchsorted(cumulative, noise[:, None] * total, right=True)
    return torch.minimum(place, last)
