"""Nucleus sampling: one token a row from the smallest set of likeliest tokens of a given mass."""

from __future__ import annotations

import torch
from torch import Tensor

from holdfast.model.deterministic import cumulative

_FIRST_RANKED = 256  # tokens ranked first; a wider nucleus is ranked in full


def nucleus_sample(logits: Tensor, noise: Tensor, top_p: float, top_k: int | None) -> Tensor:
    """One token a row from the smallest set of likeliest tokens whose mass reaches ``top_p``.

    logits: [rows, vocabulary], already divided by the temperature; noise: uniform in [0, 1),
    [rows], at which the inverse of the set's cumulative distribution is taken, likeliest token
    first; top_k: only the k likeliest tokens take part.
    """
    vocabulary = logits.shape[1]
    if top_k is not None and top_k < vocabulary:
        threshold = logits.topk(top_k, dim=1).values[:, -1:]
        logits = logits.masked_fill(logits < threshold, float("-inf"))
    probabilities = logits.softmax(dim=1)
    draw = _draw_by_value if probabilities.device.type == "cpu" else _draw_by_rank
    ranked = min(_FIRST_RANKED, vocabulary)
    drawn, inside = draw(probabilities, noise, top_p, ranked)
    if not bool(inside.all()):
        wide = (~inside).nonzero().squeeze(1)
        drawn[wide], _ = draw(probabilities[wide], noise[wide], top_p, vocabulary)
    return drawn


def _draw_by_value(
    probabilities: Tensor, noise: Tensor, top_p: float, ranked: int
) -> tuple[Tensor, Tensor]:
    """:func:`_draw_by_rank` for a CPU: NumPy sorts the masses, then the drawn token is looked up.

    Sorting the tokens' indices too takes twenty times as long.
    """
    rows = torch.arange(len(probabilities))
    masses = probabilities.neg().numpy()
    if ranked < probabilities.shape[1]:
        masses.partition(ranked - 1, axis=1)
        masses = masses[:, :ranked].copy()
    masses.sort(axis=1)
    negative = torch.from_numpy(masses)
    mass = negative.neg()
    sums = cumulative(mass)
    place = _place(sums, noise, top_p)
    value = mass.gather(1, place)
    owners, tokens = (probabilities == value).nonzero(as_tuple=True)
    # Tokens of equal mass are ranked in the order of the vocabulary.
    among_equals = place - torch.searchsorted(negative, -value)
    first = torch.searchsorted(owners, rows)
    drawn = tokens[first + among_equals.squeeze(1)]
    return drawn, _holds(sums, probabilities, top_p)


def _draw_by_rank(
    probabilities: Tensor, noise: Tensor, top_p: float, ranked: int
) -> tuple[Tensor, Tensor]:
    """Draw among the ``ranked`` likeliest tokens; also return which rows' nucleus they hold."""
    if ranked < probabilities.shape[1]:
        mass, order = probabilities.topk(ranked, dim=1)
    else:
        mass, order = probabilities.sort(dim=1, descending=True, stable=True)
    sums = cumulative(mass)
    drawn = order.gather(1, _place(sums, noise, top_p)).squeeze(1)
    return drawn, _holds(sums, probabilities, top_p)


def _holds(cumulative: Tensor, probabilities: Tensor, top_p: float) -> Tensor:
    """In which rows the ranked tokens hold the whole nucleus: [rows]."""
    return (cumulative[:, -1] >= top_p) | (cumulative.shape[1] == probabilities.shape[1])


def _place(cumulative: Tensor, noise: Tensor, top_p: float) -> Tensor:
    """The drawn rank [rows, 1], from the cumulative masses, largest mass first."""
    bound = torch.full_like(noise[:, None], top_p, dtype=cumulative.dtype)
    # The nucleus ends with the first token whose sum reaches top_p. If rounding keeps all sums
    # below top_p, it ends with the last token that has any mass.
    last = torch.searchsorted(cumulative, bound).clamp_(max=cumulative.shape[1] - 1)
    total = cumulative.gather(1, last)
    last = torch.searchsorted(cumulative, total)
    place = torch.searchsorted(cumulative, noise[:, None] * total, right=True)
    return torch.minimum(place, last)
