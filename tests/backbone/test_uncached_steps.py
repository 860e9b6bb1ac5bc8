"""Steps that keep nothing, and which models need them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import (
    BartConfig,
    BartForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    OpenAIGPTConfig,
    OpenAIGPTLMHeadModel,
    Qwen3_5ForCausalLM,
    Qwen3_5TextConfig,
)

from holdfast.backbone.generation.steps import CachedSteps, UncachedSteps, steps_for
from tests.backbone.test_steps import SIZES, Bare, gpt2


def recurrent() -> Any:
    return MambaForCausalLM(
        MambaConfig(vocab_size=61, hidden_size=16, state_size=4, num_hidden_layers=2)
    )


def hybrid() -> Any:
    """Layers with a state beside a layer with keys and values."""
    sizes = {**SIZES, "head_dim": 8, "linear_num_key_heads": 1, "linear_num_value_heads": 2}
    return Qwen3_5ForCausalLM(
        Qwen3_5TextConfig(
            **sizes,
            linear_key_head_dim=8,
            linear_value_head_dim=8,
            layer_types=["linear_attention", "full_attention"],
        )
    )


def without_positions() -> Any:
    """Positions are places in the row, whatever stands before it."""
    sizes = {"d_model": 16, "decoder_layers": 2, "decoder_attention_heads": 2}
    return BartForCausalLM(
        BartConfig(vocab_size=61, **sizes, decoder_ffn_dim=24, max_position_embeddings=64)
    )


def without_cache() -> Any:
    return OpenAIGPTLMHeadModel(
        OpenAIGPTConfig(vocab_size=61, n_embd=16, n_layer=2, n_head=2, n_positions=64)
    )


@pytest.mark.parametrize(
    ("made", "cached"),
    [
        (hybrid, True),
        (gpt2, True),
        (recurrent, False),  # its cache goes by another name
        (without_positions, False),
        (without_cache, False),
    ],
)
def test_any_causal_model_says_what_it_says_alone(
    made: Callable[[], Any], cached: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Rows of unlike lengths leave and repeat; a cache that errs is not used, and that is said."""
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = made().float()
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.data.normal_(0, 0.3)
    backbone = Bare(model)
    prompts = [[5], [7, 8, 9, 1, 2, 3], [4, 4, 6]]
    with caplog.at_level(logging.WARNING), torch.no_grad():
        steps = steps_for(backbone)  # type: ignore[arg-type]
        assert isinstance(steps, CachedSteps if cached else UncachedSteps)
        assert ("generates without a cache" in caplog.text) != cached
        ids, rows = steps.begin(prompts), [list(prompt) for prompt in prompts]
        for step in range(8):
            logits = steps(ids)
            for row, ours in zip(rows, logits, strict=True):
                alone = backbone.logits(backbone.hidden(torch.tensor([row])))[0, -1]
                torch.testing.assert_close(ours, alone, rtol=1e-3, atol=1e-3)
            ids = logits.argmax(dim=-1)
            for row, token in zip(rows, ids.tolist(), strict=True):
                row.append(token)
            order = {2: [2, 0, 1, 1], 4: [3, 0]}.get(step)
            if order is not None:
                steps.keep(torch.tensor(order))
                ids, rows = ids[order], [list(rows[place]) for place in order]
