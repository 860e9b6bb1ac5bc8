"""Drawing from the nucleus: the distribution, and every way of finding it."""

from __future__ import annotations

import shutil

import pytest
import torch
from torch import Tensor

from holdfast.backbone.generation import nucleus
from holdfast.backbone.generation.nucleus import nucleus_sample, uniforms_a_draw
from tests.backbone.drawing import warped


def random_logits(rows: int, vocabulary: int, spread: float, seed: int = 0) -> Tensor:
    source = torch.Generator().manual_seed(seed)
    return spread * torch.randn(rows, vocabulary, generator=source)


@pytest.mark.parametrize("spread", [0.3, 3.0])
@pytest.mark.parametrize("vocabulary", [50, 700])
@pytest.mark.parametrize(
    ("temperature", "top_p", "top_k"),
    [(1.0, 0.9, None), (1.5, 0.9, None), (0.7, 0.5, 20), (1.5, 1.0, 7), (1.5, 1.0, None),
     (1.0, 1e-6, None), (1.0, 0.9, 1)],
)  # fmt: skip
def test_the_distribution_is_that_of_generate(
    spread: float, vocabulary: int, temperature: float, top_p: float, top_k: int | None
) -> None:
    """The noise swept over an even grid of M points draws each token M p times, but for two."""
    logits = random_logits(1, vocabulary, spread)
    points = 5_000
    noise = (torch.arange(points, dtype=torch.float64) + 0.5) / points
    rows = (logits / temperature).expand(points, -1)
    drawn = nucleus_sample(rows, noise.float(), top_p, top_k)
    counts = torch.bincount(drawn, minlength=vocabulary).double()
    expected = points * warped(logits, temperature, top_p, top_k)[0].double()
    assert (counts - expected).abs().max() < 2.0
    assert not counts[expected == 0].any()


@pytest.mark.parametrize("of_a_draw", [(), (7,)])
@pytest.mark.parametrize("noise", [0.0, 1 - 2**-24])
@pytest.mark.parametrize(("top_p", "top_k"), [(0.9, None), (1.0, None), (1.0, 5), (1e-9, None)])
def test_extreme_noise_draws_possible_tokens(
    noise: float, top_p: float, top_k: int | None, of_a_draw: tuple[int, ...]
) -> None:
    logits = random_logits(500, 300, 3.0)
    logits[:, ::2] = float("-inf")
    logits[:, 1::4] = -200.0  # no mass in float32
    drawn = nucleus_sample(logits, torch.full((500, *of_a_draw), noise), top_p, top_k)
    assert (warped(logits, 1.0, top_p, top_k).gather(1, drawn[:, None]) > 0).all()
    if noise == 0.0 and not of_a_draw:
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
    by_rank, inside = nucleus._draw_by_rank(probabilities, noise, top_p, 900)
    assert inside.all()
    by_value, all_inside = nucleus._draw_by_value(probabilities, noise, top_p, 900)
    assert all_inside.all()
    assert torch.equal(by_value, by_rank)
    assert torch.equal(nucleus_sample(logits, noise, top_p, None), by_rank)
    part, inside = nucleus._draw_by_rank(probabilities, noise, top_p, 256)
    assert inside.any() == (top_p < 1)
    assert not inside.all()
    if not ties:  # which of several equal ones stand first is not fixed among the first ranks
        assert torch.equal(part[inside], by_rank[inside])
    part, also_inside = nucleus._draw_by_value(probabilities, noise, top_p, 256)
    assert torch.equal(also_inside, inside)
    assert torch.equal(part[inside], by_rank[inside])


def by_hand(row: list[float], noise: list[float], top_p: float) -> int:
    """The candidates of one row in turn, the nucleus by sorting."""
    nucleus, mass = set(), 0.0
    for token in sorted(range(len(row)), key=lambda token: (-row[token], token)):
        if mass < top_p:
            nucleus.add(token)
        mass += row[token]
    whole = sum(row)
    for value in noise:
        reached = 0.0
        token = -1
        while reached <= value * whole:
            token += 1
            reached += row[token]
        if token in nucleus:
            return token
    return max(range(len(row)), key=lambda token: row[token])


@pytest.mark.parametrize("top_p", [0.3, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("candidates", [1, 3, 15])
@pytest.mark.parametrize("ties", [False, True])
def test_candidates_are_taken_in_turn(top_p: float, candidates: int, ties: bool) -> None:
    """Also where none of them is inside, which the first test of candidates never sees."""
    logits = torch.cat([random_logits(40, 60, 2.0), random_logits(40, 60, 0.2, seed=1)])
    if ties:
        logits = (2 * logits).round() / 2
    logits[:, ::7] = float("-inf")
    noise = torch.rand(80, candidates, generator=torch.Generator().manual_seed(3)).double()
    probabilities = logits.double().softmax(dim=1)
    drawn = nucleus_sample(logits.double(), noise, top_p, None).tolist()
    expected = [
        by_hand(row, values, top_p)
        for row, values in zip(probabilities.tolist(), noise.tolist(), strict=True)
    ]
    assert drawn == expected
    assert len(set(drawn)) > 10


@pytest.mark.parametrize(("top_p", "top_k"), [(0.9, None), (0.5, None), (1.0, 30), (0.9, 30)])
def test_candidates_have_the_distribution_of_generate(top_p: float, top_k: int | None) -> None:
    """Chi-square of 20,000 independent draws."""
    logits, draws = random_logits(1, 120, 1.0), 20_000
    source = torch.Generator().manual_seed(5)
    noise = torch.rand(draws, *uniforms_a_draw(torch.device("cuda"), top_p), generator=source)
    assert noise.dim() == 2
    drawn = nucleus_sample(logits.expand(draws, -1), noise, top_p, top_k)
    counts = torch.bincount(drawn, minlength=120).double()
    expected = draws * warped(logits, 1.0, top_p, top_k)[0].double()
    possible = expected > 0
    assert not counts[~possible].any()
    freedom = int(possible.sum()) - 1
    assert freedom > 10
    chi = ((counts - expected).square() / expected)[possible].sum()
    assert abs(chi - freedom) < 5 * (2 * freedom) ** 0.5


def test_as_many_candidates_as_are_surely_enough() -> None:
    gpu = torch.device("cuda")
    for top_p in (0.5, 0.6, 0.9, 0.99):
        (count,) = uniforms_a_draw(gpu, top_p)
        assert (1 - top_p) ** count <= 1e-9
        assert (count + 1) & count == 0  # bisection halves one more than there are
    assert uniforms_a_draw(gpu, 1.0) == (1,)
    assert uniforms_a_draw(gpu, 0.1) == uniforms_a_draw(torch.device("cpu"), 0.9) == ()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the compiler itself
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_the_compiled_sums_draw_what_the_plain_ones_draw() -> None:
    logits = torch.cat([random_logits(40, 300, 3.0), random_logits(40, 300, 0.1)])
    logits = logits.bfloat16().float()  # with ties
    noise = torch.rand(80, 15, generator=torch.Generator().manual_seed(3))
    plain = nucleus_sample(logits, noise, 0.9, None)
    for rows in (80, 7):
        fused = nucleus_sample(logits[-rows:], noise[-rows:], 0.9, None, fused=True)
        assert torch.equal(fused, plain[-rows:])
