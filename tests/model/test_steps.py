"""Steps with transformers' cache, and without, against whole passes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    BartConfig,
    BartForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    OpenAIGPTConfig,
    OpenAIGPTLMHeadModel,
    Qwen3_5ForCausalLM,
    Qwen3_5TextConfig,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from holdfast.model.generation import decoding
from holdfast.model.generation.decoding import (
    CachedSteps,
    UncachedSteps,
    bytes_per_token,
    cache_of,
    keeps_keys_alone,
    steps_for,
)
from tests.tiny import tiny_gemma_of_images

SIZES: dict[str, Any] = {
    "vocab_size": 61,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}


def gpt2() -> Any:
    sizes = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 256, "vocab_size": 61}
    return GPT2LMHeadModel(GPT2Config(**sizes))


MODELS: dict[str, Callable[[], Any]] = {
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SIZES, head_dim=8)),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SIZES)),
    "gpt2": gpt2,
}


class Bare:
    """A model without a tokenizer, with what generation asks of a backbone."""

    stop_tokens = frozenset(range(0, 61, 9))
    pad_token = 3

    def __init__(self, model: Any) -> None:
        self.model = model.eval().requires_grad_(False)
        self.head = model.get_output_embeddings()
        self.device = self.head.weight.device
        self.dtype = self.head.weight.dtype

    def hidden(self, ids: Tensor) -> Tensor:
        states: Tensor = self.model.base_model(input_ids=ids, use_cache=False).last_hidden_state
        return states

    def logits(self, hidden: Tensor) -> Tensor:
        logits: Tensor = self.head(hidden)
        return logits


@pytest.fixture(params=MODELS)
def backbone(request: pytest.FixtureRequest) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(5)
        model = MODELS[request.param]().double()
        for weight in model.parameters():  # peaked enough to differ from row to row
            weight.data *= 3
    return Bare(model)


def test_steps_equal_whole_passes_across_blocks_and_departures(backbone: Any) -> None:
    source = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 61, (9, 30), generator=source)
    with torch.no_grad():
        whole = backbone.model(input_ids=ids, use_cache=False).logits
        steps, running = CachedSteps(backbone), torch.arange(9)
        for position in range(30):
            logits = steps(ids[running, position])
            torch.testing.assert_close(logits, whole[running, position])
            if position in (0, 1, 4, 13, 20):
                gone = position % len(running)
                order = torch.tensor([row for row in range(len(running)) if row != gone])
                steps.keep(order)
                running = running[order]


@pytest.mark.parametrize("lengths", [(1, 1, 1), (2, 2, 2), (13, 13, 13), (1, 9, 4), (6, 5, 1)])
def test_prompts_pass_at_once_and_their_rows_repeat(backbone, lengths, monkeypatch) -> None:
    """Each as if it were alone, whatever stands before it; rows leave, and go where others were."""
    monkeypatch.setattr(decoding, "_PREFILLED_TOKENS", 15)  # five positions of three rows
    source = torch.Generator().manual_seed(0)
    prompts = [torch.randint(0, 61, (n,), generator=source).tolist() for n in lengths]
    order = torch.tensor([0, 0, 1, 2, 2, 2, 0])
    after = torch.randint(0, 61, (7, 20), generator=source)
    whole = [
        backbone.model(input_ids=torch.tensor([[*prompts[row], *tokens]]), use_cache=False)
        .logits[0, -21:].detach()
        for row, tokens in zip(order.tolist(), after.tolist(), strict=True)
    ]  # fmt: skip
    for steps in (CachedSteps(backbone), UncachedSteps(backbone)):
        ids = steps.begin(prompts)[order]
        assert ids.tolist() == [prompts[row][-1] for row in order.tolist()]
        steps.keep(order)
        running = torch.arange(7)
        for position in range(21):
            with torch.no_grad():
                logits = steps(ids)
            theirs = torch.stack([whole[row][position] for row in running.tolist()])
            torch.testing.assert_close(logits, theirs)
            leave = {0: [0, 6, 2, 3, 4, 5], 4: [5, 1, 2, 2, 0, 3], 13: [4, 1]}.get(position)
            if leave is not None:
                steps.keep(torch.tensor(leave))
                running = running[leave]
            if position < 20:
                ids = after[running, position]


def test_a_window_that_slides_keeps_its_own_cache() -> None:
    model: Any = MistralForCausalLM(MistralConfig(**SIZES, sliding_window=4))
    assert not keeps_keys_alone(model)
    model = model.double()
    ids = torch.randint(0, 61, (3, 12), generator=torch.Generator().manual_seed(0))
    steps = CachedSteps(Bare(model))  # type: ignore[arg-type]
    with torch.no_grad():
        whole = model(input_ids=ids, use_cache=False).logits
        for position in range(12):
            logits = steps(ids[:, position])
            torch.testing.assert_close(logits, whole[:, position])


def test_bytes_are_those_that_are_kept(backbone: Any) -> None:
    cache = cache_of(backbone.model)
    assert keeps_keys_alone(backbone.model)
    with torch.no_grad():
        backbone.model(input_ids=torch.ones(1, 1, dtype=torch.long), past_key_values=cache)
    stored = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
    assert bytes_per_token(backbone.model) == stored


def test_a_model_that_also_sees_images_is_counted_by_its_text_configuration() -> None:
    model = tiny_gemma_of_images()
    assert bytes_per_token(model) == 2 * 2 * 8 * 4  # keys and values, layers, head_dim, float32


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
def test_any_causal_model_says_what_it_says_alone(made, cached, caplog) -> None:
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
