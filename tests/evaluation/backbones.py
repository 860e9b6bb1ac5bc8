"""Tiny untrained backbones of three families, with tokenizers of three kinds."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_model, save_model
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from holdfast.backbone.model import Backbone
from tests.made_once import made_once

from .lessons import BLANK, END, LESSONS, TEMPLATE, teach


def _texts() -> list[str]:
    texts = [TEMPLATE.prompt(item) + reply for item, reply in LESSONS]
    return [text.replace(END, "").replace(BLANK, "") for text in texts] * 3


def _wrapped(tokenizer: Tokenizer) -> Any:
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END, pad_token=END, extra_special_tokens=[BLANK]
    )


def byte_level(pieces: str, size: int) -> Any:
    """Byte-level BPE over pieces of a text. pieces: a regular expression."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(Regex(pieces), behavior="isolated")
    as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, as_bytes])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[END, BLANK],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_texts(), trainer)
    return _wrapped(tokenizer)


def sentence_piece(size: int) -> Any:
    """BPE with Metaspace, bytes for unknown characters, and a decoder that strips a space."""
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=[], show_progress=False)
    draft = Tokenizer(models.BPE())
    draft.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    draft.train_from_iterator([text for text in _texts() if text.isascii()], trainer)
    learned = sorted(draft.get_vocab().items(), key=lambda pair: pair[1])
    pieces = [END, BLANK, "<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += [piece for piece, _ in learned]
    merges = [tuple(merge) for merge in json.loads(draft.to_str())["model"]["merges"]]
    vocabulary = {piece: token for token, piece in enumerate(pieces)}
    tokenizer = Tokenizer(
        models.BPE(vocab=vocabulary, merges=merges, unk_token="<unk>", byte_fallback=True)
    )
    tokenizer.pre_tokenizer = draft.pre_tokenizer
    spaces = decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()
    tokenizer.decoder = decoders.Sequence([*spaces, decoders.Strip(" ", 1, 0)])
    return _wrapped(tokenizer)


# Transformers reads these names in the configuration of every family.
SIZES = {
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": 512,
}


def qwen3() -> Backbone:
    """Tied head, grouped queries; pieces of a text as in the embedded tokenizer."""
    tokenizer = byte_level(r" ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+", 420)
    sizes = {"intermediate_size": 96, "num_key_value_heads": 1, "head_dim": 24}
    return _backbone(Qwen3ForCausalLM, Qwen3Config, tokenizer, tie_word_embeddings=True, **sizes)


def llama() -> Backbone:
    """Untied head, SentencePiece-like tokenizer."""
    sizes = {"intermediate_size": 96, "num_key_value_heads": 2}
    return _backbone(LlamaForCausalLM, LlamaConfig, sentence_piece(300), **sizes)


def gpt2() -> Backbone:
    """Learned positions, untied head; merges run over word and line ends alike."""
    tokenizer = byte_level(r"[\s\S]+", 460)
    return _backbone(GPT2LMHeadModel, GPT2Config, tokenizer, tie_word_embeddings=False)


def _backbone(model: Any, config: Any, tokenizer: Any, **settings: Any) -> Backbone:
    torch.manual_seed(0)
    end = tokenizer.eos_token_id
    tokens = {"bos_token_id": end, "eos_token_id": end, "pad_token_id": end}
    made = config(vocab_size=len(tokenizer), **SIZES, **tokens, **settings)
    return Backbone(model(made).float(), tokenizer)


FAMILIES: dict[str, Callable[[], Backbone]] = {"qwen3": qwen3, "llama": llama, "gpt2": gpt2}


def taught_lessons(family: str, tmp_path_factory: pytest.TempPathFactory) -> Backbone:
    """A backbone that says after every prompt what its lesson says."""

    def make(directory: Path) -> None:
        backbone = FAMILIES[family]()
        teach(backbone, 100)
        directory.mkdir()
        save_model(backbone.model, str(directory / "weights"))

    weights = made_once(tmp_path_factory, f"taught-{family}", make) / "weights"
    backbone = FAMILIES[family]()
    load_model(backbone.model, str(weights))
    return backbone
