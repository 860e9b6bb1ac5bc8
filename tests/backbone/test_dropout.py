"""Dropout by named seeds."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch

from holdfast.backbone.adapters.dropout import Dropout, _DeviceMasks
from holdfast.backbone.adapters.workspace import PAPER_TARGETS, Adapters
from holdfast.backbone.sequences import collate
from tests.tiny import exact_backbone

CPU = torch.device("cpu")


def dropped(probability: float, seed: int, x: torch.Tensor) -> torch.Tensor:
    dropout = Dropout(probability)
    dropout.reseed([seed], CPU)
    return x if (mask := mask_of(dropout, x)) is None else x * mask / (1 - dropout.probability)


def mask_of(dropout: Dropout, x: torch.Tensor) -> torch.Tensor | None:
    return dropout.mask([len(x)], x)


@pytest.mark.parametrize("probability", [0.05, 0.3, 0.5, 0.9])
def test_statistics(probability: float) -> None:
    x = torch.ones(400, 500, dtype=torch.float64)
    y = dropped(probability, 1, x)
    assert set(y.unique().tolist()) == {0.0, 1.0 / (1.0 - probability)}
    zeros = (y == 0).double()
    error = (probability * (1 - probability)) ** 0.5
    # Five standard errors: of all entries, and of the correlation of neighbours both ways.
    assert abs(zeros.mean() - probability) < 5 * error / x.numel() ** 0.5
    centred = (zeros - probability) / error
    for product in (centred[1:] * centred[:-1], centred[:, 1:] * centred[:, :-1]):
        assert abs(product.mean()) < 5 / product.numel() ** 0.5


@pytest.mark.parametrize("probability", [1 / 65536, 0.05, 0.5, 0.999])
def test_the_share_is_exact_to_one_in_65536(
    probability: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    class EveryWord:
        def __init__(self, seed: int) -> None:
            assert seed == 3

        def random_raw(self, count: int) -> np.ndarray:
            return np.resize(np.arange(65536, dtype=np.uint16), 4 * count).view(np.uint64)

    monkeypatch.setattr(np.random, "SFC64", EveryWord)
    zeros = (dropped(probability, 3, torch.ones(256, 256)) == 0).sum()
    assert zeros == round(65536 * probability)


def test_the_masks_of_a_device_are_as_even_as_those_of_the_processor() -> None:
    """What a GPU draws, here from the generator that a processor has in its place."""

    def drawn(seed: int) -> torch.Tensor:
        mask = torch.empty(2**11, 2**10, dtype=torch.bool)
        _DeviceMasks(seed, CPU).draw(mask, 0.05)
        return mask

    mask = drawn(3)
    assert abs(float((~mask).double().mean()) - 0.05) < 5 * (0.05 * 0.95 / 2**21) ** 0.5
    assert torch.equal(mask, drawn(3))
    assert not torch.equal(mask, drawn(4))


def test_a_seed_names_its_masks() -> None:
    x = torch.ones(64, 8)
    assert torch.equal(dropped(0.5, 7, x), dropped(0.5, 7, x))
    assert not torch.equal(dropped(0.5, 7, x), dropped(0.5, 8, x))
    dropout = Dropout(0.5)
    dropout.reseed([7], CPU)
    first, second = mask_of(dropout, x), mask_of(dropout, x)
    assert first is not None
    assert second is not None
    assert torch.equal(first / 0.5, dropped(0.5, 7, x))
    assert not torch.equal(first, second)


def test_a_batch_keeps_its_masks_in_company() -> None:
    """Replay beside the current minibatch does not move the masks of the latter."""
    alone, both, last = Dropout(0.5), Dropout(0.5), Dropout(0.5)
    alone.reseed([7], CPU)
    both.reseed([7, 8], CPU)
    last.reseed([7, 8], CPU)
    last.alone(1)
    for width in (8, 30):
        first, whole, second = (
            dropout.mask(rows, torch.ones(1, width))
            for dropout, rows in ((alone, [64]), (both, [64, 50]), (last, [50]))
        )
        assert first is not None
        assert whole is not None
        assert second is not None
        assert torch.equal(whole, torch.cat([first, second]))


def test_the_global_generators_do_not_matter() -> None:
    x = torch.ones(64, 8)
    states = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        before = torch.get_rng_state()
        states.append(dropped(0.5, 7, x))
        assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(*states)


def test_nothing_is_dropped_without_a_seed_or_a_probability() -> None:
    x = torch.ones(8, 2)
    dropout = Dropout(0.5)
    assert mask_of(dropout, x) is None
    dropout.reseed([1], CPU)
    assert mask_of(dropout, x) is not None
    dropout.reseed((), CPU)
    assert mask_of(dropout, x) is None
    assert dropped(0.0, 1, x) is x


@pytest.mark.parametrize("way", ["modules", "decoder"])
def test_maps_that_read_one_tensor_share_its_mask(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """q, k and v: one mask; o: one; gate and up: one; down: one. In every layer."""
    backbone = exact_backbone()
    config = Adapters.Config(rank=2, dropout=0.4, targets=PAPER_TARGETS)
    assert backbone.adapt(config) is None
    drawn: list[Any] = []
    draw = Dropout.mask

    def counted(dropout: Dropout, rows: list[int], like: torch.Tensor) -> torch.Tensor | None:
        mask = draw(dropout, rows, like)
        if mask is not None:
            drawn.append(mask.shape)
        return mask

    monkeypatch.setattr(Dropout, "mask", counted)
    batch = collate([[3, 1, 4, 1, 5]], CPU)
    with backbone.by_modules() if way == "modules" else nullcontext():
        with backbone.learning(5):
            backbone.states(batch)
        narrow, wide = (4, 16), (4, 32)
        assert drawn == [narrow, narrow, narrow, wide] * 2
        with backbone.learning():
            backbone.states(batch)
        with backbone.answering():
            backbone.states(batch)
    assert len(drawn) == 8


def test_what_survives_is_divided_by_its_share() -> None:
    """W x + rho B A (m x) / (1 - p), so that its expectation is the map without dropout."""
    backbone = exact_backbone()
    backbone.adapt(Adapters.Config(rank=2, alpha=6, dropout=0.4, targets=("down_proj",)))
    source = torch.Generator().manual_seed(0)
    with torch.no_grad():
        backbone.adapters.parameters.normal_(generator=source)
    layer = next(iter(backbone.adapters.layers.values()))
    x = torch.randn(5, 32, generator=source, dtype=torch.float64)
    twin = Dropout(0.4)
    twin.reseed([7], CPU)
    mask = mask_of(twin, x)
    assert mask is not None and 0 < mask.mean() < 1
    with torch.no_grad(), backbone.learning(7):
        ours = layer(x)
    branch = 3 * (mask * x / 0.6) @ layer.down.t() @ layer.up.t()
    torch.testing.assert_close(ours, layer.base(x) + branch, rtol=1e-12, atol=1e-12)


def test_training_is_reproducible_and_dropout_matters() -> None:
    backbone = exact_backbone()
    backbone.adapt(Adapters.Config(rank=2, dropout=0.4))
    with torch.no_grad():
        backbone.adapters.parameters.normal_(generator=torch.Generator().manual_seed(0))
    states = []
    for seeds in ((5,), (5,), (6,), ()):
        with backbone.learning(*seeds):
            states.append(backbone.hidden(torch.tensor([[3, 1, 4, 1]])))
    assert torch.equal(states[0], states[1])
    assert not torch.allclose(states[0], states[2])
    assert not torch.allclose(states[0], states[3])


@pytest.mark.parametrize("way", ["modules", "decoder"])
def test_the_gradient_goes_through_the_masks(way: str) -> None:
    """Its slope in any direction is that between two passes with the same masks."""
    backbone = exact_backbone()
    backbone.adapt(Adapters.Config(rank=2, dropout=0.4))
    adapters, source = backbone.adapters, torch.Generator().manual_seed(0)
    start, direction = torch.randn(2, len(adapters.gradient), generator=source, dtype=torch.float64)
    batch = collate([[3, 1, 4, 1, 5], [9, 2, 6]], CPU)

    def slope_at(point: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        gradient = torch.zeros_like(adapters.gradient)
        with torch.no_grad():
            adapters.parameters.copy_(point)
        with backbone.learning(5):
            passed = backbone.forward_pass(batch)
            loss = passed.states[0].tanh().sum()
            passed.backward((loss, gradient))
        return loss.detach(), gradient @ direction

    with backbone.by_modules() if way == "modules" else nullcontext():
        (above, _), (below, _) = (slope_at(start + step * direction) for step in (1e-6, -1e-6))
        torch.testing.assert_close(slope_at(start)[1], (above - below) / 2e-6, rtol=1e-6, atol=0)
