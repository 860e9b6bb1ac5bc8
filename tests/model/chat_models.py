"""Tiny chat models: a byte tokenizer with a chat template, random weights, float64 if asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

from tests.model.standins import tiny_tokenizer
from tests.tiny import exact_norms

# A system turn that the template adds by itself; a beginning of an answer of several tokens.
TEMPLATE = (
    "<|reply|>Be brief.<|endoftext|>"
    "{% for message in messages %}"
    "{{ '<|user|>' if message['role'] == 'user' else '<|reply|>the' }}{{ message['content'] }}"
    "<|endoftext|>{% endfor %}"
    "{% if add_generation_prompt %}<|reply|>the{% endif %}"
)


def chat_tokenizer(template: str | None = TEMPLATE) -> PreTrainedTokenizerFast:
    """One token a byte and two merges; <|endoftext|>, <|user|> and <|reply|> are special."""
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = template
    return tokenizer


def chat_llama(seed: int = 0, context: int = 2048) -> LlamaForCausalLM:
    """Random weights in which an adapter on the upper layers learns a few facts exactly."""
    config = LlamaConfig(
        vocab_size=len(tiny_tokenizer()),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=context,
        initializer_range=0.2,
        tie_word_embeddings=False,
        eos_token_id=0,
        bos_token_id=None,
        pad_token_id=0,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return LlamaForCausalLM(config).eval().requires_grad_(False)


def chat_gpt2(seed: int = 0) -> GPT2LMHeadModel:
    """The other architecture: learned positions, and linear maps stored [d_in, d_out]."""
    config = GPT2Config(
        vocab_size=len(tiny_tokenizer()),
        n_positions=256,
        n_embd=32,
        n_layer=3,
        n_head=2,
        initializer_range=0.2,
        eos_token_id=0,
        bos_token_id=0,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return GPT2LMHeadModel(config).eval().requires_grad_(False)


def exact(model: Any) -> Any:
    """The model in float64 throughout."""
    exact_norms(model.double())
    return model


def write_chat_model(place: Path, seed: int = 0, **more: Any) -> Path:
    """A directory with a model and its tokenizer, as a user names one."""
    chat_llama(seed, **more).save_pretrained(place)
    chat_tokenizer().save_pretrained(place)
    return place
