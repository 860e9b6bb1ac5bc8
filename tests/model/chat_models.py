"""Tiny chat models: a byte tokenizer with a chat template, random weights, float64 if asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

from tests.model.standins import tiny_tokenizer
from tests.tiny import drawn, exact_norms, llama_of

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
    model = teachable_llama(tiny_tokenizer(), seed, max_position_embeddings=context)
    return model.eval().requires_grad_(False)


def teachable_llama(tokenizer: Any, seed: int = 0, **more: Any) -> LlamaForCausalLM:
    """The same for any tokenizer; more: replaces or adds values of the configuration."""
    values = {"initializer_range": 0.2, "tie_word_embeddings": False}
    values["pad_token_id"] = tokenizer.pad_token_id
    return llama_of(tokenizer, seed, layers=4, width=64, heads=4, **{**values, **more})


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
    return drawn(GPT2LMHeadModel, config, seed).eval().requires_grad_(False)


def exact(model: Any) -> Any:
    """The model in float64 throughout."""
    exact_norms(model.double())
    return model


def write_chat_model(place: Path, seed: int = 0, **more: Any) -> Path:
    """A directory with a model and its tokenizer, as a user names one."""
    chat_llama(seed, **more).save_pretrained(place)
    chat_tokenizer().save_pretrained(place)
    return place


def plain_reply(model: Any, tokenizer: Any, question: str, longest: int, **more: Any) -> str:
    """By transformers alone, greedily, asked through the chat template."""
    turn = [{"role": "user", "content": question}]
    asked = tokenizer.apply_chat_template(
        turn, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    ids = model.generate(**asked, max_new_tokens=longest, do_sample=False, **more)
    return str(tokenizer.decode(ids[0, asked["input_ids"].shape[1] :], skip_special_tokens=True))
