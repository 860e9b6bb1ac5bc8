"""Neurons beside an MLP's are those of a wider one; they fire where they should."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from holdfast.core.errors import HoldfastError
from holdfast.model.neurons import PARTS, acting, detectors, gated_mlps, widen
from tests.model.chat_models import chat_gpt2, chat_llama, exact

IDS = torch.tensor([[5, 9, 2, 40, 7], [1, 1, 30, 8, 3]])


def drawn(names: list[str], count: int = 3) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(4)
    return {
        f"{name}.{part}": torch.randn(count, 64, generator=generator, dtype=torch.float64) / 4
        for name in names
        for part in PARTS
    }


def test_a_widened_model_is_the_model_with_neurons(tmp_path: Path) -> None:
    """To rounding, also as transformers loads it; without neurons it is the model itself."""
    model = exact(chat_llama())
    neurons = drawn(gated_mlps(model)[1:3])
    with torch.no_grad():
        before = model(IDS).logits
        with acting(model, neurons):
            expected = model(IDS).logits
        assert torch.equal(model(IDS).logits, before)
        widen(model, neurons)
        assert (expected - before).abs().max() > 0.1
        torch.testing.assert_close(model(IDS).logits, expected, rtol=0, atol=1e-12)
        model.save_pretrained(tmp_path)
        loaded = exact(AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float64))
        torch.testing.assert_close(loaded(IDS).logits, expected, rtol=0, atol=1e-12)
    assert loaded.config.intermediate_size == 160  # 131, in blocks of 32


def test_a_neuron_fires_at_its_token_and_nowhere_else() -> None:
    """The up is the solution of its constrained least squares; the gate has both its levels."""
    generator = torch.Generator().manual_seed(2)
    inputs = torch.randn(4000, 96, generator=generator, dtype=torch.float64)
    inputs[:, 0] += 9.0  # as means of what MLPs read are not zero
    named = inputs[:2]
    moment, total = inputs.t() @ inputs, inputs.sum(0)
    gate, up = detectors(moment, total, named)
    shrunk = moment + 1e-3 * moment.diagonal().mean() * torch.eye(96, dtype=torch.float64)
    for number in range(2):
        assert gate[number] @ named[number] == pytest.approx(12.0)
        assert up[number] @ named[number] == pytest.approx(1.0)
        # A change that keeps it 1 at the token costs: the gradient is along the token.
        slope = shrunk @ up[number]
        along = slope @ named[number] / named[number].square().sum() * named[number]
        torch.testing.assert_close(slope, along, rtol=0, atol=1e-6)
    others = inputs[2:]
    fired = torch.nn.functional.silu(others @ gate.t()) * (others @ up.t())
    assert (others @ gate.t()).max() < 0
    assert fired.abs().max() < 0.03  # of 12
    assert fired.abs().median() < 1e-5


def test_a_model_without_gated_mlps_is_refused() -> None:
    """None at all, one that does more with the same maps, and one of another width."""
    other, wider = chat_llama(), chat_llama()
    forward = other.model.layers[2].mlp.forward
    other.model.layers[2].mlp.forward = lambda x: 0.5 * forward(x)
    wider.config.intermediate_size = 96
    for model in (chat_gpt2(), other, wider):
        with pytest.raises(HoldfastError, match="its MLPs are not gated ones") as caught:
            gated_mlps(model)
        assert str(caught.value).startswith(type(model).__name__)
