"""Sampled sequences: the nucleus that generate draws from, and nothing but the noise decides."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers.generation.logits_process import (
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from holdfast.core.seeding import generator
from holdfast.model.backbone import Backbone
from holdfast.model.generation import sampling
from holdfast.model.generation.sampling import Sampling, nucleus_sample, sample_continuations
from tests.tiny import exact_backbone

SETTINGS = Sampling(temperature=1.3, top_p=0.9, max_new_tokens=7)


def warped(logits: Tensor, temperature: float, top_p: float, top_k: int | None) -> Tensor:
    """The distribution from which ``model.generate`` draws: [rows, vocabulary]."""
    ids = torch.zeros(len(logits), 1, dtype=torch.long)
    scores = TemperatureLogitsWarper(temperature)(ids, logits)  # type: ignore[arg-type]
    if top_k is not None:
        scores = TopKLogitsWarper(top_k)(ids, scores)  # type: ignore[arg-type]
    if top_p < 1:
        scores = TopPLogitsWarper(top_p)(ids, scores)  # type: ignore[arg-type]
    return scores.softmax(dim=-1)


def random_logits(rows: int, vocabulary: int, spread: float, seed: int = 0) -> Tensor:
    source = torch.Generator().manual_seed(seed)
    return spread * torch.randn(rows, vocabulary, generator=source)


@pytest.mark.parametrize("spread", [0.3, 3.0])
@pytest.mark.parametrize(
    ("temperature", "top_p", "top_k"),
    [(1.0, 0.9, None), (1.5, 0.9, None), (0.7, 0.5, 20), (1.5, 1.0, 7), (1.5, 1.0, None),
     (1.0, 1e-6, None), (1.0, 0.9, 1)],
)  # fmt: skip
def test_the_distribution_is_that_of_generate(spread, temperature, top_p, top_k) -> None:
    """The noise swept over an even grid of M points draws each token M p times, but for two."""
    vocabulary = 700
    logits = random_logits(1, vocabulary, spread)
    points = 5_000
    noise = (torch.arange(points, dtype=torch.float64) + 0.5) / points
    rows = (logits / temperature).expand(points, -1)
    drawn = nucleus_sample(rows, noise.float(), top_p, top_k)
    counts = torch.bincount(drawn, minlength=vocabulary).double()
    expected = points * warped(logits, temperature, top_p, top_k)[0].double()
    assert (counts - expected).abs().max() < 2.0
    assert not counts[expected == 0].any()


@pytest.mark.parametrize("noise", [0.0, 1 - 2**-24])
@pytest.mark.parametrize(("top_p", "top_k"), [(0.9, None), (1.0, None), (1.0, 5), (1e-9, None)])
def test_extreme_noise_draws_possible_tokens(noise: float, top_p: float, top_k: int | None) -> None:
    logits = random_logits(500, 300, 3.0)
    logits[:, ::2] = float("-inf")
    logits[:, 1::4] = -200.0  # no mass in float32
    drawn = nucleus_sample(logits, torch.full((500,), noise), top_p, top_k)
    assert (warped(logits, 1.0, top_p, top_k).gather(1, drawn[:, None]) > 0).all()
    if noise == 0.0:
        assert torch.equal(drawn, logits.argmax(dim=1))


@pytest.mark.parametrize("top_p", [0.5, 0.9, 0.999, 1.0])
@pytest.mark.parametrize("ties", [False, True])
def test_every_way_of_ranking_draws_the_same(top_p: float, ties: bool) -> None:
    """Peaked rows stay inside the first ranks, flat ones do not, side by side."""
    logits = torch.cat([random_logits(200, 900, 4.0), random_logits(200, 900, 0.1, seed=1)])
    if ties:
        logits = logits.bfloat16().float()
    noise = torch.rand(400, generator=torch.Generator().manual_seed(2))
    probabilities = logits.softmax(dim=1)
    by_rank, inside = sampling._draw_by_rank(probabilities, noise, top_p, 900)
    assert inside.all()
    by_value, all_inside = sampling._draw_by_value(probabilities, noise, top_p, 900)
    assert all_inside.all()
    assert torch.equal(by_value, by_rank)
    assert torch.equal(nucleus_sample(logits, noise, top_p, None), by_rank)
    part, inside = sampling._draw_by_rank(probabilities, noise, top_p, 256)
    assert inside.any() == (top_p < 1)
    assert not inside.all()
    if not ties:  # which of several equal ones stand first is not fixed among the first ranks
        assert torch.equal(part[inside], by_rank[inside])
    part, also_inside = sampling._draw_by_value(probabilities, noise, top_p, 256)
    assert torch.equal(also_inside, inside)
    assert torch.equal(part[inside], by_rank[inside])


def continuations(
    backbone: Backbone,
    count: int,
    batch: int,
    *,
    seed: int = 3,
    purpose: tuple[str | int, ...] = ("replay", 2),
    **changed: Any,
) -> list[list[int]]:
    settings = SETTINGS.model_copy(update={"batch": batch, **changed})
    return sample_continuations(backbone, [9] * count, settings, seed=seed, purpose=purpose)


def alone(backbone: Backbone, prompt: int, noise: Tensor) -> list[int]:
    """One sample by whole forward passes: no cache, no neighbours."""
    tokens: list[int] = []
    for value in noise:
        with torch.no_grad():
            hidden = backbone.hidden(torch.tensor([[prompt, *tokens]]))[:, -1]
        logits = backbone.logits(hidden).float() / SETTINGS.temperature
        tokens.append(int(nucleus_sample(logits, value[None], SETTINGS.top_p, None)))
        if tokens[-1] in backbone.stop_tokens:
            break
    return tokens


@pytest.fixture(scope="module")
def stopping() -> Backbone:
    """A backbone for which every fourth token ends the text."""
    backbone = exact_backbone()
    backbone.stop_tokens = frozenset(range(0, 257, 4))
    return backbone


def test_rows_that_stop_leave_the_others_alone(stopping: Backbone) -> None:
    drawn = continuations(stopping, 12, 12)
    noise = torch.rand(12, 7, generator=generator(3, "replay", 2))
    assert drawn == [alone(stopping, 9, row) for row in noise]
    assert {1, 7} < {len(tokens) for tokens in drawn}


@pytest.mark.parametrize("batch", [1, 5, 12])
def test_the_batch_does_not_matter(stopping: Backbone, batch: int) -> None:
    whole = continuations(stopping, 12, 512)
    assert continuations(stopping, 12, batch) == whole


def test_draws_are_named(stopping: Backbone) -> None:
    before = torch.get_rng_state()
    plain = continuations(stopping, 12, 5)
    torch.manual_seed(99)
    assert continuations(stopping, 12, 5) == plain
    torch.set_rng_state(before)
    assert continuations(stopping, 12, 5, seed=4) != plain
    assert continuations(stopping, 12, 5, purpose=("replay", 3)) != plain
    assert torch.equal(before, torch.get_rng_state())
    # Fewer samples are the first of more: the noise belongs to the sample.
    assert continuations(stopping, 8, 5) == plain[:8]
