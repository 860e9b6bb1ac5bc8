"""Drawing from the nucleus: the distribution, and every way of finding it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from holdfast.backbone.generation import sampling
from holdfast.backbone.generation.sampling import nucleus_sample
from tests.backbone.drawing import warped


def random_logits(rows: int, vocabulary: int, spread: float, seed: int = 0) -> Tensor:
    source = torch.Generator().manual_seed(seed)
    return spread * torch.randn(rows, vocabulary, generator=source)


@pytest.mark.parametrize("spread", [0.3, 3.0])
@pytest.mark.parametrize(
    ("temperature", "top_p", "top_k"),
    [(1.0, 0.9, None), (1.5, 0.9, None), (0.7, 0.5, 20), (1.5, 1.0, 7), (1.5, 1.0, None),
     (1.0, 1e-6, None), (1.0, 0.9, 1)],
)  # fmt: skip
def test_the_distribution_is_that_of_generate(
    spread: float, temperature: float, top_p: float, top_k: int | None
) -> None:
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
