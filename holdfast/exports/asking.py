"""How to ask an exported model with plain transformers: tokenizer and generation settings.

Holdfast puts the replay token, or nothing, before a question, and decodes greedily. The exported
files do the same, whatever the backbone's own tokenizer and settings do.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers.processors import TemplateProcessing
from transformers import AutoTokenizer, GenerationConfig

from holdfast.backbone.model import REPLAY_TOKEN, Backbone
from holdfast.exports.chat import chat_template

_PROBES = ("Question: Who?\nAnswer:", "  two  spaces, 1 234 and \N{SNOWMAN}")


@dataclass(frozen=True)
class Asking:
    """How to ask an exported model.

    first: token ids to put before a question, which is then tokenized without special tokens;
    None when the tokenizer adds them by itself.
    chat: whether the chat template asks with the same tokens.
    base: where the backbone of an adapter is loaded from, a hub name or an absolute path; empty for
    a complete model; revision: of the hub. beside: it lies in the export's folder ``base`` instead.
    rows: embedding rows that the backbone needs before the adapter is loaded; None: it has them.
    """

    first: list[int] | None
    chat: bool = False
    base: str = ""
    revision: str | None = None
    beside: bool = False
    rows: int | None = None

    @property
    def is_adapter(self) -> bool:
        """Whether a backbone is loaded first."""
        return bool(self.base)


def write_asking(backbone: Backbone, max_new_tokens: int, folder: Path) -> Asking:
    """Write the tokenizer and ``generation_config.json`` of a model.

    max_new_tokens: the length limit of an answer. A slow (pure Python) tokenizer has no
    post-processor to replace, so it is written as the backbone has it. The chat template is ours.
    """
    tokenizer = backbone.tokenizer
    if getattr(tokenizer, "backend_tokenizer", None) is not None:
        tokenizer.backend_tokenizer.post_processor = _processor(backbone.seed_token)
    if tokenizer.pad_token is None and tokenizer.eos_token is not None:
        tokenizer.pad_token = tokenizer.eos_token
    tokenizer.chat_template = chat_template(backbone)
    tokenizer.save_pretrained(folder)
    if (folder / "tokenizer.json").exists():
        _take_as_written(folder / "tokenizer_config.json")
    greedy(backbone, max_new_tokens).save_pretrained(folder)
    first = [] if backbone.seed_token is None else [backbone.seed_token]
    loaded = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    automatic = all(
        list(loaded(probe)["input_ids"]) == first + backbone.tokenize(probe) for probe in _PROBES
    )
    return Asking(None if automatic else first, chat=tokenizer.chat_template is not None)


def greedy(backbone: Backbone, max_new_tokens: int) -> GenerationConfig:
    """Settings for greedy decoding with Holdfast's stop tokens, not the backbone's own settings."""
    own = backbone.model.generation_config
    return GenerationConfig(
        do_sample=False,
        max_new_tokens=max_new_tokens,
        bos_token_id=own.bos_token_id,
        eos_token_id=sorted(backbone.stop_tokens) or None,
        pad_token_id=backbone.pad_token,
    )


def _processor(seed_token: int | None) -> TemplateProcessing:
    if seed_token is None:
        return TemplateProcessing(single="$A:0", pair="$A:0 $B:1", special_tokens=[])
    return TemplateProcessing(
        single=f"{REPLAY_TOKEN}:0 $A:0",
        pair=f"{REPLAY_TOKEN}:0 $A:0 $B:1",
        special_tokens=[(REPLAY_TOKEN, seed_token)],
    )


def _take_as_written(path: Path) -> None:
    """Make transformers load ``tokenizer.json`` unchanged: some classes would prepend a token.

    Batches are padded on the left, as a decoder-only model needs.
    """
    settings: dict[str, Any] = json.loads(path.read_text("utf-8"))
    for key in ("add_bos_token", "add_eos_token", "auto_map"):
        settings.pop(key, None)
    settings |= {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_input_names": ["input_ids", "attention_mask"],
        "padding_side": "left",
        "clean_up_tokenization_spaces": False,
    }
    path.write_text(json.dumps(settings, indent=2, ensure_ascii=False) + "\n", "utf-8")
