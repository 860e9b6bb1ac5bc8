"""The template of a model's items: the paper's form, or the model's own chat template."""

from __future__ import annotations

from typing import Any

from holdfast.core.config import sha256_of
from holdfast.core.errors import HoldfastError
from holdfast.model.chat import chat_form, turns
from holdfast.streams.template import Form, Template


def template_for(settings: Template.Config, model: Any) -> Template:
    """The template of the settings; in the chat form its end of a turn becomes a stop token.

    model: has a ``tokenizer``, and ``stop_tokens`` that end a generation. Raises HoldfastError for
    the chat form if the model has no usable chat template.
    """
    template = template_of(settings, model.tokenizer)
    if settings.form == "chat":
        model.stop_tokens |= {chat_form(model.tokenizer).end}
    return template


def texts_sha256(settings: Template.Config, tokenizer: Any) -> str:
    """The sha256 of the texts that a template puts around a question and its answer."""
    form = template_of(settings, tokenizer).form
    opening = [form.opening] if form.opening else []
    return sha256_of([form.before, form.between, *opening, form.end])


def template_of(settings: Template.Config, tokenizer: Any) -> Template:
    """The template of the settings; raises HoldfastError as :func:`template_for` does."""
    if settings.form == "paper":
        return Template(settings)
    if not getattr(tokenizer, "chat_template", None):
        raise HoldfastError(
            "template.form = chat: this model has no chat template; use template.form=paper"
        )
    form = chat_form(tokenizer)
    before, between, blank = turns(tokenizer)
    texts = {token: str(tokenizer.decode([token])) for token in tokenizer.added_tokens_decoder}
    special = {*tokenizer.all_special_ids, *form.stops}
    special |= {token for token, added in tokenizer.added_tokens_decoder.items() if added.special}
    special |= {token for token, text in texts.items() if text.strip() and text in before + between}
    marks = {tokenizer.decode([token]) for token in special} - {""}
    end = tokenizer.decode([form.end])
    return Template(settings, Form(before, between, blank, end, False, tuple(sorted(marks))))
