"""Tiny random backbones, small enough to hold every number in a test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    Gemma3Config,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MixtralConfig,
    PreTrainedTokenizerFast,
)

from holdfast.model.backbone import Backbone

END = "<|endoftext|>"
SMALL: dict[str, Any] = {  # of a decoder: its sizes, the scale of its weights, its special tokens
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "initializer_range": 0.3,
    "eos_token_id": 0,
    "bos_token_id": None,
    "pad_token_id": None,
}


class ExactNorm(nn.Module):
    """The root-mean-square norm in the precision of its input; transformers' own is float32."""

    def __init__(self, weight: torch.Tensor, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.detach().clone())
        self.variance_epsilon = epsilon

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight * x * (x.square().mean(-1, keepdim=True) + self.variance_epsilon).rsqrt()


def byte_tokenizer(
    marks: Sequence[str] = (), merges: Sequence[tuple[str, str]] = (), **tokens: Any
) -> PreTrainedTokenizerFast:
    """One token a byte, after those of the end of a sequence and of ``marks``; then the merges.

    tokens: further special tokens by what they are.
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    symbols = [END, *marks, *alphabet, *map("".join, merges)]
    vocabulary = {symbol: index for index, symbol in enumerate(symbols)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=list(merges)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, **tokens)


def tiny_llama(seed: int = 0, layers: int = 2, width: int = 16) -> LlamaForCausalLM:
    """The llama of one token a byte."""
    return llama_of(byte_tokenizer(), seed, layers, width)


def llama_of(
    tokenizer: Any, seed: int = 0, layers: int = 2, width: int = 16, heads: int = 2, **more: Any
) -> LlamaForCausalLM:
    """Random weights, large enough that attention and the feed-forward part do something.

    more: replaces or adds values of the configuration.
    """
    values = {
        **SMALL,
        "vocab_size": len(tokenizer),
        "hidden_size": width,
        "intermediate_size": 2 * width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": heads // 2,
        "tie_word_embeddings": True,
        "eos_token_id": tokenizer.eos_token_id,
    }
    return drawn(LlamaForCausalLM, LlamaConfig(**{**values, **more}), seed)


def drawn(kind: Any, config: Any, seed: int = 0) -> Any:
    """A model with the random weights of a seed; the global generator stays as it is."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return kind(config)


def exact_backbone(seed: int = 0) -> Backbone:
    """A tiny backbone in float64 throughout."""
    model = tiny_llama(seed).double()
    exact_norms(model)
    return Backbone(model, byte_tokenizer())


def exact_norms(model: nn.Module) -> None:
    """Replace the norms of a Llama by those that keep the precision of their input."""
    for name, module in list(model.named_modules()):
        if type(module).__name__ == "LlamaRMSNorm":
            parent, _, child = name.rpartition(".")
            norm = ExactNorm(module.weight, module.variance_epsilon)
            setattr(model.get_submodule(parent), child, norm)


def exact_gpt2(seed: int = 0) -> Backbone:
    """A tiny GPT-2 in float64: its linear maps are ``Conv1D``, stored [d_in, d_out]."""
    tokenizer = byte_tokenizer()
    config = GPT2Config(
        vocab_size=len(tokenizer),
        n_positions=64,
        n_embd=16,
        n_layer=2,
        n_head=2,
        initializer_range=0.3,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    return Backbone(drawn(GPT2LMHeadModel, config, seed).double(), tokenizer)


def short_sequences(count: int, seed: int = 1, first: int | None = None) -> list[list[int]]:
    """Token sequences of 4 to 7 tokens (a seed token comes on top), none of them padding."""
    source = torch.Generator().manual_seed(seed)
    drawn = []
    for _ in range(count):
        length = int(torch.randint(4, 8, (1,), generator=source))
        body = torch.randint(1, 40, (length,), generator=source).tolist()
        drawn.append(body if first is None else [first, *body])
    return drawn


def normal(*shape: int, seed: int) -> torch.Tensor:
    """Normal numbers in float64."""
    source = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=source, dtype=torch.float64)


def flat(coordinates: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """All entries of named coordinates as one vector."""
    return torch.cat([coordinate.detach().flatten() for coordinate in coordinates.values()])


def draw_factors(coordinates: Mapping[str, torch.Tensor], std: float, seed: int = 0) -> None:
    """Overwrite the coordinates of a workspace by normal numbers."""
    source = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for coordinate in coordinates.values():
            coordinate.normal_(std=std, generator=source)


def tiny_gemma_of_images(positions: int = 256) -> Any:
    """A model whose own settings stand in a text configuration, beside that of its images."""
    text = {**SMALL, "vocab_size": 257, "head_dim": 8, "max_position_embeddings": positions}
    images = {
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": 28,
        "patch_size": 14,
    }
    config = Gemma3Config(text_config=text, vision_config=images, mm_tokens_per_image=4)
    return drawn(AutoModelForCausalLM.from_config, config)


def save_tiny_mixture(folder: Path) -> None:
    """Write a mixture of four experts, of which each token takes two, and its tokenizer."""
    config = MixtralConfig(**SMALL, vocab_size=257, num_local_experts=4)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
