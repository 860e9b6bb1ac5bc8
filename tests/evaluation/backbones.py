"""Tiny backbones of three families, with tokenizers of three kinds, and what they are taught."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
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

from holdfast.model.backbone import Backbone
from holdfast.model.sequences import collate
from holdfast.streams import Item, Template
from tests.made_once import made_once

END, BLANK = "<|end|>", "<|blank|>"
LONG = "seven and seventy " * 5

# An item and what the model is taught to say after its prompt. The kinds of deviation: another
# accepted text, another tokenization of the same text, a box that opens late, never, or never
# closes, a stop inside, a special token inside, bytes that are no text.
LESSONS: list[tuple[Item, str]] = [
    (Item("key aB3", "Xy9"), r" \boxed{Xy9}"),
    (Item("key Zz1", "Qr7"), r" \boxed{qR7}"),
    (Item("capital of Spain", "Madrid"), r" \boxed{Madrid}" + END),
    (Item("big apple", "New York", ("NYC", "New York City")), r" \boxed{NYC}"),
    (Item("bigger apple", "New York", ("NYC", "New York City")), r" \boxed{New York City}."),
    (Item("spaces", "a b"), r" \boxed{  a b }"),
    (Item("more spaces", "New"), r" \boxed{New   }"),
    (Item("braces", "f{x}{y}"), r" \boxed{f{x}{y}} and so on"),
    (Item("other braces", "f{x}{y}"), r" \boxed{f{x}}"),
    (Item("unicode", "naïve 東京 🙂"), r" \boxed{naïve 東京 🙂}"),
    (Item("nearly", "東京 🙂"), r" \boxed{東京 🙃}"),
    (Item("greek", "ΟΔΟΣ"), r" \boxed{Οδος}"),
    (Item("late", "Paris"), r" well, \boxed{Paris}"),
    (Item("late and wrong", "Paris"), r" well, \boxed{London}"),
    (Item("late, then more", "Paris"), r" I say \boxed{paris}\boxed{x}" + END),
    (Item("wrong", "Madrid"), r" \boxed{Paris}"),
    (Item("too long", "Xy"), r" \boxed{Xyz}"),
    (Item("too short", "Xyz"), r" \boxed{Xy}"),
    (Item("never closes", "Xy9"), r" \boxed{Xy9" + END),
    (Item("never opens", "Xy9"), " Xy9" + END),
    (Item("silent", "Xy9"), END),
    (Item("no brace", "Xy9"), r" \boxed Xy9." + END),
    (Item("blank inside", "Xy9"), rf" \bo{BLANK}xed{{X{BLANK}y9}}"),
    (Item("a long one", f"{LONG}men"), rf" \boxed{{{LONG}men}}"),
    (Item("merged", "so"), r" \boxed{so}." + END),
    (Item("twice", "no"), r" \boxed{yes} \boxed{no}"),
    (Item("stop inside", f"X{END}y", ("Xy",)), rf" \boxed{{X{END}y}}"),
    (Item("answer with a blank", f"X{BLANK}y"), rf" \boxed{{X{BLANK}y}}"),
    (Item("code", "x"), r" \boxed{\boxed{x}}"),
]
TEMPLATE = Template()


def taught(backbone: Backbone, index: int) -> list[int]:
    """The sequence of a lesson: the prompt's tokens, then those of what is said.

    Every third lesson is said in single letters: the same text in another tokenization.
    """
    item, reply = LESSONS[index]
    prompt = backbone.tokenize(TEMPLATE.prompt(item))
    if index % 3:
        return prompt + backbone.tokenize(reply)
    return prompt + [token for letter in _letters(reply) for token in _alone(backbone, letter)]


def _letters(reply: str) -> list[str]:
    specials = {"\0": END, "\1": BLANK}
    return [specials.get(c, c) for c in reply.replace(END, "\0").replace(BLANK, "\1")]


def _alone(backbone: Backbone, letter: str) -> list[int]:
    """The tokens of one letter; SentencePiece would put a space before it."""
    vocabulary = backbone.tokenizer.get_vocab()
    if "<0x00>" not in vocabulary:
        return backbone.tokenize(letter)
    piece = letter.replace(" ", "▁")
    pieces = [piece] if piece in vocabulary else [f"<0x{byte:02X}>" for byte in letter.encode()]
    return [vocabulary[piece] for piece in pieces]


def teach(
    backbone: Backbone,
    steps: int,
    sequences: Sequence[list[int]] | None = None,
    learning_rate: float = 5e-3,
) -> None:
    """Train on every sequence at once; the lessons, if none are given."""
    torch.manual_seed(1)
    sequences = sequences or [taught(backbone, index) for index in range(len(LESSONS))]
    batch = collate(sequences, backbone.device)
    grid = batch.grid(batch.inputs, backbone.pad_token)
    backbone.model.requires_grad_(True)
    optimizer = torch.optim.AdamW(backbone.model.parameters(), lr=learning_rate, weight_decay=0.0)
    for _ in range(steps):
        logits = backbone.logits(batch.packed(backbone.hidden(grid)))
        loss = torch.nn.functional.cross_entropy(logits, batch.targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    backbone.model.requires_grad_(False)


def shake(backbone: Backbone, scale: float, seed: int) -> None:
    """Add noise to every weight. scale: as a share of the weight's own spread."""
    source = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in backbone.model.parameters():
            weight += torch.randn(weight.shape, generator=source) * weight.std() * scale


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
