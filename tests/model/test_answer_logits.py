"""Logits at some places are those of the whole pass, whatever a model does behind its head."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM, Gemma2Config, GraniteConfig, LlamaConfig

from holdfast.model.reading import logits_at

SIZES = {
    "vocab_size": 50,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 8,
}
CONFIGS = {
    "plain": LlamaConfig(**SIZES),
    "scaled": GraniteConfig(**SIZES, logits_scaling=3.0),
    "capped": Gemma2Config(**SIZES, final_logit_softcapping=0.1),
}


@pytest.mark.parametrize("kind", CONFIGS)
def test_logits_at_places(kind: str) -> None:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(CONFIGS[kind]).double().eval()
    ids = torch.randint(0, 50, (3, 7))
    rows, columns = [0, 0, 2], [1, 6, 0]
    expected = model(ids).logits
    with logits_at(model, rows, columns):
        logits = model(ids).logits
    assert logits.shape == (1, 3, 50)
    torch.testing.assert_close(logits[0], expected[rows, columns])
    torch.testing.assert_close(model(ids).logits, expected)  # the block is over


def test_a_pass_that_fails_leaves_the_head_alone() -> None:
    model = AutoModelForCausalLM.from_config(CONFIGS["plain"]).eval()
    with pytest.raises(IndexError), logits_at(model, [5], [0]):
        model(torch.tensor([[1, 2]]))
    assert model(torch.tensor([[1, 2]])).logits.shape == (1, 2, 50)
