"""Sampled sequences: nothing but the noise decides a draw."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from holdfast.backbone.generation.sampling import Sampling, nucleus_sample, sample_continuations
from holdfast.backbone.model import Backbone
from holdfast.core.seeding import generator
from tests.backbone.drawing import warped
from tests.tiny import exact_backbone

SETTINGS = Sampling(temperature=1.3, top_p=0.9, max_new_tokens=7)


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
    lengths = {len(tokens) for tokens in drawn}
    assert 1 in lengths and 7 in lengths and len(lengths) > 3
    for tokens in drawn:
        assert not stopping.stop_tokens & set(tokens[:-1])
        assert len(tokens) == 7 or tokens[-1] in stopping.stop_tokens


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


def test_first_tokens_are_drawn_from_the_models_distribution() -> None:
    """Chi-square over one whole run: 4000 independent first tokens."""
    backbone = exact_backbone()
    drawn = continuations(backbone, 4000, 4000, max_new_tokens=1)
    counts = torch.bincount(torch.tensor(drawn).flatten(), minlength=257).double()
    with torch.no_grad():
        logits = backbone.logits(backbone.hidden(torch.tensor([[9]]))[:, -1]).float()
    expected = 4000 * warped(logits, 1.3, 0.9, None)[0].double()
    possible = expected > 0
    assert not counts[~possible].any()
    likely = expected > 5
    rest = torch.stack([counts[~likely].sum(), expected[~likely].sum()])
    observed = torch.cat([counts[likely], rest[:1]])
    wanted = torch.cat([expected[likely], rest[1:]])
    keep = wanted > 0
    chi = ((observed - wanted).square() / wanted)[keep].sum()
    freedom = int(keep.sum()) - 1
    assert freedom > 10
    # Mean k and variance 2k: five standard deviations.
    assert abs(chi - freedom) < 5 * (2 * freedom) ** 0.5
