"""The chat template of an export: the last user message, asked as the model was taught.

``apply_chat_template`` tokenizes without special tokens, so the template writes the replay token.
"""

from __future__ import annotations

from holdfast.backbone.model import REPLAY_TOKEN, Backbone
from holdfast.streams import Item, Template

_QUESTIONS = ("Who?", "two  spaces, 1 234 and \N{SNOWMAN}")
# A message is a text, or a list of parts of which those with a text count. Whatever else was said,
# by the system, the model or the user, was no part of a sequence in training.
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


def chat_template(backbone: Backbone) -> str | None:
    """The Jinja template; None where no text gives the tokens that Holdfast asks with.

    A tokenizer of words puts a mark of a space before a text, and some not behind a special token;
    there the template writes a space.
    """
    before, _, after = Template().prompt(Item(_MARK, "?")).partition(_MARK)
    opening = _opening(backbone)
    if opening is None:
        return None
    begin, end = (_literal(text) for text in (opening + before, after))
    return f"{_LAST_QUESTION}{{{{- {begin} + last.question | trim + {end} -}}}}"


def _opening(backbone: Backbone) -> str | None:
    """The text that begins a question; None where there is none."""
    if backbone.seed_token is None:
        return ""
    prompts = [Template().prompt(Item(question, "?")) for question in _QUESTIONS]
    for space in ("", " "):
        text = REPLAY_TOKEN + space
        if all(
            backbone.tokenize(text + prompt) == [backbone.seed_token, *backbone.tokenize(prompt)]
            for prompt in prompts
        ):
            return text
    return None


def _literal(text: str) -> str:
    """A Jinja string; texts with quotes or backslashes are not ours."""
    assert not set(text) & set("\\\"'"), text
    return '"' + text.replace("\n", "\\n") + '"'
