"""The exported tokenizer and its chat template ask in the very tokens in which Holdfast asks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer, ByT5Tokenizer, PreTrainedTokenizerFast

from holdfast import HoldfastError
from holdfast.exports.export import export
from holdfast.learning.recorded import Recorded
from holdfast.streams import Item, Template
from tests.exports.exported import configured, family, learned, saved
from tests.tiny import END, byte_tokenizer

SYMBOLS = [chr(code) for code in range(33, 127)]
QUESTIONS = ("red", "  Who keeps the\n lighthouse?  ", "1,234 {km}", "'Why' \"not\"? {{ 1 + 1 }}")


def pieces(scheme: str) -> PreTrainedTokenizerFast:
    """A tokenizer as of SentencePiece: a mark for spaces, one put before a text too."""
    vocabulary = {piece: n for n, piece in enumerate([END, "\N{LOWER ONE EIGHTH BLOCK}", "\n"])}
    words = [mark + word for mark in ("", "\N{LOWER ONE EIGHTH BLOCK}") for word in SYMBOLS]
    vocabulary |= {
        piece: len(vocabulary) + n
        for n, piece in enumerate(word for word in words if word not in vocabulary)
    }
    merges = [("\N{LOWER ONE EIGHTH BLOCK}", symbol) for symbol in SYMBOLS]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, unk_token=END))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    tokenizer.decoder = decoders.Metaspace(prepend_scheme=scheme)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END)


@pytest.mark.parametrize(("to", "method"), [("hf", "merge"), ("peft", "replay_merge")])
@pytest.mark.parametrize("kind", ["embedded", "bytes", "pieces first", "pieces always"])
def test_the_tokens_are_those_that_holdfast_asks_with(
    kind: str, method: str, to: Any, stream: Path, tmp_path: Path
) -> None:
    base: Any = "embedded"
    if kind != "embedded":
        tokenizer = byte_tokenizer() if kind == "bytes" else pieces(kind.split()[1])
        tokenizer.chat_template = "{{ 'its own' }}"
        tokenizer.bos_token = END
        tokenizer.add_bos_token = True
        base = saved(tmp_path / "base", family("qwen3", len(tokenizer)), tokenizer)
    directory = learned(tmp_path / "run", configured(base, stream, method), 1)
    export(directory, to, tmp_path / "out", checked=False)
    backbone = Recorded.read(directory).learner(Recorded.read(directory).last).backbone
    asked = AutoTokenizer.from_pretrained(tmp_path / "out")
    for question in QUESTIONS:
        expected = Template().encode_prompt(
            Item(question, "?"), backbone.tokenizer, backbone.seed_token
        )
        plain = [{"role": "user", "content": question}]
        earlier = [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Is it late?"},
            {"role": "assistant", "content": "Yes."},
        ]
        parts = [{"role": "user", "content": [{"type": "text", "text": question}]}]
        for chat in (plain, earlier + plain, parts):
            for prompted in (False, True):
                encoding = asked.apply_chat_template(
                    chat, add_generation_prompt=prompted, return_dict=True
                )
                assert list(encoding["input_ids"]) == expected, (question, chat)
    first = [] if backbone.seed_token is None else [backbone.seed_token]
    assert expected[: len(first)] == first and bool(first) == ("replay" in method)


def test_a_tokenizer_in_python_is_refused(stream: Path, tmp_path: Path) -> None:
    """It ends every text with a token, and cannot be taught otherwise."""
    tokenizer = ByT5Tokenizer(extra_ids=0)
    base = saved(tmp_path / "base", family("qwen3", len(tokenizer)), tokenizer)
    directory = learned(tmp_path / "run", configured(base, stream, "replay"), 1)
    with pytest.raises(HoldfastError, match="ByT5Tokenizer, is written in Python"):
        export(directory, "hf", tmp_path / "out")
    assert not (tmp_path / "out").exists()
