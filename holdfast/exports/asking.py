"""Write what plain transformers needs to ask an export: tokenizer, chat template, settings.

Holdfast puts the replay token, or nothing, before a question, and decodes greedily. The exported
files do the same, whatever the backbone's own tokenizer and settings do. ``apply_chat_template``
tokenizes without special tokens, so the template writes the replay token.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers.processors import TemplateProcessing
from transformers import GenerationConfig

from holdfast.backbone.model import REPLAY_TOKEN, Backbone
from holdfast.core.errors import HoldfastError
from holdfast.model.chat import with_one_date
from holdfast.model.template import template_for
from holdfast.streams import Item, Template
from holdfast.streams.template import PAPER

_QUESTIONS = ("Who?", "two  spaces, 1 234 and \N{SNOWMAN}")
# A message is a text, or a list of parts whose texts are joined. Only the last one of the user
# counts, since no training sequence had a system's text, or earlier questions and answers.
_LAST_QUESTION = """\
{%- set last = namespace(question="") -%}
{%- for message in messages -%}
{%- if message["role"] == "user" -%}
{%- set last.question = message["content"] -%}
{%- endif -%}
{%- endfor -%}
{%- if last.question is not string -%}
{%- set said = namespace(text="") -%}
{%- for part in last.question -%}
{%- set said.text = said.text + (part["text"] or "") -%}
{%- endfor -%}
{%- set last.question = said.text -%}
{%- endif -%}
"""
_MARK = "HERE"


def write_asking(
    backbone: Backbone, settings: Template.Config, max_new_tokens: int, folder: Path
) -> None:
    """Write a model's tokenizer, with its chat template, and ``generation_config.json``.

    settings: of the form in which the model was taught; for the paper's form the chat template is
    ours. max_new_tokens: the length limit of an answer. Raises HoldfastError for a tokenizer
    written in Python, which cannot be made to put the replay token, or nothing, first.
    """
    tokenizer = backbone.tokenizer
    if getattr(tokenizer, "backend_tokenizer", None) is None:
        raise HoldfastError(
            f"{backbone.model.name_or_path}: its tokenizer, {type(tokenizer).__name__}, is written "
            "in Python, and only those with a tokenizer.json can be exported; ask it here"
        )
    tokenizer.backend_tokenizer.post_processor = _processor(backbone.seed_token)
    if tokenizer.pad_token is None and tokenizer.eos_token is not None:
        tokenizer.pad_token = tokenizer.eos_token
    template = template_for(settings, backbone)
    if template.form == PAPER:
        tokenizer.chat_template = _chat_template(backbone)
    else:
        first = "" if backbone.seed_token is None else REPLAY_TOKEN
        tokenizer.chat_template = first + with_one_date(tokenizer.get_chat_template())
    tokenizer.save_pretrained(folder)
    _take_as_written(folder / "tokenizer_config.json")
    greedy(backbone, max_new_tokens).save_pretrained(folder)


def greedy(backbone: Backbone, max_new_tokens: int) -> GenerationConfig:
    """Settings for greedy decoding with Holdfast's stop tokens, not the backbone's own settings."""
    defaults = backbone.model.generation_config
    return GenerationConfig(
        do_sample=False,
        max_new_tokens=max_new_tokens,
        bos_token_id=defaults.bos_token_id,
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

    Also pad batches on the left, as a decoder-only model needs.
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


def _chat_template(backbone: Backbone) -> str | None:
    """The Jinja template; None if no text gives the tokens that Holdfast asks with.

    Some tokenizers mark a space before a text, but not after a special token; for these the
    template writes a space.
    """
    before, _, after = Template().prompt(Item(_MARK, "?")).partition(_MARK)
    prompts = [Template().prompt(Item(question, "?")) for question in _QUESTIONS]
    seed = [] if backbone.seed_token is None else [backbone.seed_token]
    for opening in (REPLAY_TOKEN, f"{REPLAY_TOKEN} ") if seed else ("",):
        if all(
            backbone.tokenize(opening + prompt) == [*seed, *backbone.tokenize(prompt)]
            for prompt in prompts
        ):
            # Jinja reads JSON's string literals.
            begin, end = json.dumps(opening + before), json.dumps(after)
            return f"{_LAST_QUESTION}{{{{- {begin} + last.question | trim + {end} -}}}}"
    return None
