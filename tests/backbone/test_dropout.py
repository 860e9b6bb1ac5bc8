"""Dropout by named seeds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from holdfast.backbone.adapters import PAPER_TARGETS, Adapters
from holdfast.backbone.dropout import Dropout
from tests.tiny import exact_backbone

CPU = torch.device("cpu")


def dropped(probability: float, seed: int, x: torch.Tensor) -> torch.Tensor:
    dropout = Dropout(probability)
    dropout.reseed(seed, CPU)
    return dropout(x)


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
def test_the_share_is_exact_to_one_in_65536(probability: float) -> None:
    class EveryWord:
        def bytes(self, count: int) -> bytes:
            return np.arange(count // 2, dtype=np.uint16).tobytes()

    dropout = Dropout(probability)
    dropout.reseed(0, CPU)
    dropout._words = EveryWord()  # type: ignore[assignment]
    zeros = (dropout(torch.ones(65536)) == 0).sum()
    assert zeros == round(65536 * probability)


def test_a_seed_names_its_masks() -> None:
    x = torch.ones(64, 8)
    assert torch.equal(dropped(0.5, 7, x), dropped(0.5, 7, x))
    assert not torch.equal(dropped(0.5, 7, x), dropped(0.5, 8, x))
    dropout = Dropout(0.5)
    dropout.reseed(7, CPU)
    first, second = dropout(x), dropout(x.clone())
    assert torch.equal(first, dropped(0.5, 7, x))
    assert not torch.equal(first, second)


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
    x = torch.ones(8)
    dropout = Dropout(0.5)
    assert dropout(x) is x
    dropout.reseed(1, CPU)
    assert dropout(x) is not x
    dropout.reseed(None, CPU)
    assert dropout(x) is x
    assert dropped(0.0, 1, x) is x


def test_the_gradient_passes_where_the_value_does() -> None:
    x = torch.randn(100, generator=torch.Generator().manual_seed(0)).requires_grad_()
    y = dropped(0.3, 1, x)
    y.sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad * x.detach(), y.detach())


def test_maps_that_read_one_tensor_share_its_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    """q, k and v: one mask; o: one; gate and up: one; down: one. In every layer."""
    backbone = exact_backbone()
    config = Adapters.Config(rank=2, dropout=0.4, targets=PAPER_TARGETS)
    adapters = Adapters(backbone.model, config, backbone.head)
    drawn: list[Any] = []
    draw = Dropout._mask

    def counted(dropout: Dropout, x: torch.Tensor) -> torch.Tensor:
        drawn.append(x.shape)
        return draw(dropout, x)

    monkeypatch.setattr(Dropout, "_mask", counted)
    ids = torch.tensor([[3, 1, 4, 1]])
    adapters.training(5)
    backbone.hidden(ids)
    narrow, wide = (1, 4, 16), (1, 4, 32)
    assert drawn == [narrow, narrow, narrow, wide] * 2
    adapters.training(None)
    backbone.hidden(ids)
    adapters.evaluating()
    backbone.hidden(ids)
    assert len(drawn) == 8


def test_training_is_reproducible_and_dropout_matters() -> None:
    backbone = exact_backbone()
    adapters = Adapters(backbone.model, Adapters.Config(rank=2, dropout=0.4), backbone.head)
    with torch.no_grad():
        adapters.parameters.normal_(generator=torch.Generator().manual_seed(0))
    states = []
    for seed in (5, 5, 6, None):
        adapters.training(seed)
        states.append(backbone.hidden(torch.tensor([[3, 1, 4, 1]])))
    assert torch.equal(states[0], states[1])
    assert not torch.allclose(states[0], states[2])
    assert not torch.allclose(states[0], states[3])
