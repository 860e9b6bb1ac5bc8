"""Nucleus sampling from prompts of one token, reproducible at any batch size.

The noise of a draw belongs to (sample, position): one table of uniform numbers decides every
token, so neither the batch size nor the samples beside it change what is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor

from holdfast.core.config import Config
from holdfast.core.processes import all_gather_lists, rank_indices
from holdfast.core.seeding import generator
from holdfast.model.backbone import Backbone
from holdfast.model.generation.decoding import Steps, bytes_per_token, steps_for

CACHE_BYTES_ON_CPU = 4 * 2**30
_WHOLE = 2.0**52  # the integer that stands for a mass of one
_FIRST_RANKED = 256  # tokens ranked first; a wider nucleus is ranked in full


class Sampling(Config):
    """Generative replay: how the previous model is sampled (tab:implementation-hparams).

    samples: sequences that begin with the replay token; general: sequences that begin with random
    tokens of the vocabulary, from the first task on, and stand for general language. keep: write
    the samples to ``replay/``. batch: the most sequences at once; fewer if memory is short.
    """

    samples: int = Field(300, ge=1)  # N_R
    temperature: float = Field(1.5, gt=0)  # tau_G
    top_p: float = Field(0.9, gt=0, le=1)
    top_k: int | None = Field(None, ge=1)
    max_new_tokens: int = Field(384, ge=1)  # L_max
    general: int = Field(0, ge=0)
    keep: bool = False
    batch: int = Field(512, ge=1)


def sample_continuations(
    backbone: Backbone,
    begins: Sequence[int] | Tensor,
    config: Sampling,
    *,
    seed: int,
    purpose: tuple[str | int, ...],
    stops: int = 1,
) -> list[list[int]]:
    """A continuation of each token of ``begins``, up to and with a stop token if one is drawn.

    stops: how many stop tokens end a continuation. The draws depend on (seed, purpose) only, and
    the model's positions may reduce L_max.  Source: eq. app-replay-generate.
    """
    source = generator(seed, *purpose)
    length = config.max_new_tokens
    if backbone.positions is not None:
        length = min(length, backbone.positions - 1)
    noise = torch.rand(len(begins), length, generator=source).to(backbone.device)
    batch = min(config.batch, rows_that_fit(backbone, length))
    indices = rank_indices(len(begins))
    noise = noise[indices.start :: indices.step]
    tokens = torch.as_tensor(begins, device=backbone.device)[indices.start :: indices.step]
    drawn: list[list[int]] = []
    with backbone.answering():
        for start in range(0, len(tokens), batch):
            drawn += continue_rows(
                steps_for(backbone),
                tokens[start : start + batch],
                noise[start : start + batch],
                backbone.stop_tokens,
                config,
                stops,
            )
    return all_gather_lists(drawn, len(begins))


def rows_that_fit(backbone: Backbone, length: int) -> int:
    """How many rows of ``length`` tokens fit into memory with cache and logits, at least one."""
    device, budget = backbone.device, CACHE_BYTES_ON_CPU
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        # Half of free memory: a growing cache exists twice for a moment.
        budget = (free + unused) // 2
        if torch.are_deterministic_algorithms_enabled():
            # Products of other shapes round otherwise, so the batch must not depend on free memory.
            budget = total // 4
    cached = bytes_per_token(backbone.model) * length
    logits = 32 * int(backbone.head.weight.shape[0])  # bytes of logits, probabilities, ranks, sums
    return max(1, budget // (cached + logits))


@torch.no_grad()
def continue_rows(
    steps: Steps,
    begins: Tensor,
    noise: Tensor,
    stop_tokens: frozenset[int],
    config: Sampling,
    ends_at: int = 1,
) -> list[list[int]]:
    """One continuation for each row of ``noise`` [rows, length], drawn side by side.

    begins: [rows], the token of each row that follows what ``steps`` have seen; ends_at: how many
    stop tokens finish a row, which is dropped.
    """
    (samples, length), device = noise.shape, begins.device
    tokens = torch.full((samples, length), -1, device=device)
    # Without stop tokens the tensor is empty, and would default to floats.
    stops = torch.tensor(sorted(stop_tokens), dtype=torch.int64, device=device)
    running = torch.arange(samples, device=device)
    drawn = begins
    stops_left = torch.full((samples,), ends_at, device=device)
    for position in range(length):
        wide = steps(drawn).float() / config.temperature
        drawn = nucleus_sample(wide, noise[running, position], config.top_p, config.top_k)
        tokens[running, position] = drawn
        stops_left[running] -= torch.isin(drawn, stops).long()
        going = (stops_left[running] > 0).nonzero().squeeze(1)
        if len(going) == 0:
            break
        if len(going) < len(running):
            steps.keep(going)
            running, drawn = running[going], drawn[going]
    return [[token for token in row if token >= 0] for row in tokens.tolist()]


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


def _holds(sums: Tensor, probabilities: Tensor, top_p: float) -> Tensor:
    """In which rows the ranked tokens hold the whole nucleus: [rows]."""
    return (sums[:, -1] >= top_p) | (sums.shape[1] == probabilities.shape[1])


def _place(sums: Tensor, noise: Tensor, top_p: float) -> Tensor:
    """The drawn rank [rows, 1], from the cumulative masses, largest mass first."""
    bound = torch.full_like(noise[:, None], top_p, dtype=sums.dtype)
    # The nucleus ends with the first token whose sum reaches top_p. If rounding keeps all sums
    # below top_p, it ends with the last token that has any mass.
    last = torch.searchsorted(sums, bound).clamp_(max=sums.shape[1] - 1)
    total = sums.gather(1, last)
    last = torch.searchsorted(sums, total)
    place = torch.searchsorted(sums, noise[:, None] * total, right=True)
    return torch.minimum(place, last)


def cumulative(masses: Tensor) -> Tensor:
    """Cumulative sums of each row of [rows, n], all values in [0, 1].

    On a GPU torch has no deterministic cumulative sum of floats, so under deterministic algorithms
    integers are summed, for which the order does not matter.
    """
    if masses.device.type == "cpu" or not torch.are_deterministic_algorithms_enabled():
        return masses.cumsum(dim=1)
    whole = (masses.double() * _WHOLE).round().long().cumsum(dim=1)
    return (whole.double() / _WHOLE).to(masses.dtype)
