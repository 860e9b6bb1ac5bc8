"""How to ask an exported model with plain transformers: tokenizer and generation settings.

Holdfast puts the replay token, or nothing, before a question, and decodes greedily. The files of
an export do the same, whatever the backbone's own tokenizer and settings do.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers.processors import TemplateProcessing
from transformers import AutoTokenizer, GenerationConfig

from holdfast.backbone.model import REPLAY_TOKEN, Backbone

_PROBES = ("Question: Who?\nAnswer:", "  two  spaces, 1 234 and \N{SNOWMAN}")


@dataclass(frozen=True)
class Asking:
    """What a user has to do to ask an exported model.

    first: ids to put before the tokens of a question, which are then to be made without special
    tokens; None when the tokenizer does all that by itself.
    base: where the backbone of an adapter is loaded from; empty for a complete model.
    rows: how many rows its embedding needs before the adapter is loaded; None: it has them.
    """

    first: list[int] | None
    base: str = ""
    rows: int | None = None


def write_asking(backbone: Backbone, max_new_tokens: int, folder: Path) -> Asking:
    """Write the tokenizer and ``generation_config.json`` of a model.

    max_new_tokens: where an answer ends. A tokenizer that is written in Python cannot be taught
    what to put first; what it writes then is the backbone's own.
    """
    tokenizer = backbone.tokenizer
    if getattr(tokenizer, "backend_tokenizer", None) is not None:
        tokenizer.backend_tokenizer.post_processor = _processor(backbone.seed_token)
    if tokenizer.pad_token is None and tokenizer.eos_token is not None:
        tokenizer.pad_token = tokenizer.eos_token
    tokenizer.save_pretrained(folder)
    if (folder / "tokenizer.json").exists():
        _take_as_written(folder / "tokenizer_config.json")
    greedy(backbone, max_new_tokens).save_pretrained(folder)
    first = [] if backbone.seed_token is None else [backbone.seed_token]
    loaded = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    automatic = all(
        list(loaded(probe)["input_ids"]) == first + backbone.tokenize(probe) for probe in _PROBES
    )
    return Asking(None if automatic else first)


def greedy(backbone: Backbone, max_new_tokens: int) -> GenerationConfig:
    """Greedy decoding with Holdfast's stop tokens, and none of the backbone's own settings."""
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
    """Let ``tokenizer.json`` be loaded as it stands: some classes would put their own token first.

    Batches are padded on the left, as a decoder needs them.
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
