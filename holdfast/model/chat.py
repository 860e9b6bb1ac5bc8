"""The prompts of a model and the template of its items: in its own chat form, or the paper's."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from jinja2 import Environment, TemplateSyntaxError

from holdfast.core.config import sha256_of
from holdfast.core.errors import HoldfastError
from holdfast.streams.template import Form, Template

_QUESTION, _ANSWER = "QsentinelQ", "AsentinelA"
_RENDER_SECONDS = 10.0  # a template is code from elsewhere and may loop without end


@dataclass(frozen=True)
class Place:
    """How to tokenize a text alone so that it gets the tokens that it has inside a template.

    SentencePiece tokenizers put a space before a text, but not after a newline. before: tokenized
    in front of the text, and its tokens are then removed; lead: put in front, and its tokens stay.
    """

    before: str = ""
    lead: str = ""


@dataclass(frozen=True)
class ChatForm:
    r"""The pieces of a question and its answer, as token ids.

    prefix: before every question; user_end: between the user's text and the invocation;
    invocation: the tokens that begin an answer, where an activated adapter starts to act; end: the
    token that ends an answer; stops: those at which decoding ends; boxed: whether answers are
    written ``\boxed{...}``, the paper's form for base models.
    """

    tokenizer: Any
    prefix: tuple[int, ...]
    user_end: tuple[int, ...]
    invocation: tuple[int, ...]
    end: int
    stops: frozenset[int]
    boxed: bool
    question_place: Place = Place()
    answer_place: Place = Place()

    def question(self, text: str) -> list[int]:
        """The tokens of a question: all between the prefix and the invocation."""
        tokens, _ = _placed(self.tokenizer, text.strip(), self.question_place)
        return [*tokens, *self.user_end]

    def spans(self, text: str) -> list[tuple[int, int]]:
        """The characters (begin, end) of a question's tokens, in its stripped text.

        These tokens are the first of :meth:`question`; a token of blanks alone may be empty.
        """
        text = text.strip()
        tokens, head = _placed(self.tokenizer, text, self.question_place)
        spans = _spans(self.tokenizer, head + text)
        spans = spans[len(spans) - len(tokens) :]
        return [(max(0, begin - len(head)), max(0, end - len(head))) for begin, end in spans]

    def answer(self, text: str) -> list[int]:
        """The tokens of an answer: all after the invocation, the end token included."""
        text = text.strip()
        whole = f"\\boxed{{{text}}}" if self.boxed else text
        tokens, _ = _placed(self.tokenizer, whole, self.answer_place)
        return [*tokens, self.end]

    def text(self, tokens: list[int]) -> str:
        """The text of decoded tokens; in the paper's form what is in the box, if it is closed."""
        text: str = self.tokenizer.decode(tokens, skip_special_tokens=True).strip()
        if self.boxed and text.startswith("\\boxed{") and text.endswith("}"):
            return text[len("\\boxed{") : -1].strip()
        return text

    def growing(self, tokens: list[int]) -> str:
        """The part of an unfinished answer's text that further tokens will not change.

        It is empty in the paper's form, whose answer is known only when its box is closed.
        """
        # The last character may still lack some of its bytes.
        return "" if self.boxed else self.text(tokens).rstrip("\ufffd")


def _placed(tokenizer: Any, text: str, place: Place) -> tuple[list[int], str]:
    """The tokens of a question or an answer in a template, and what it was tokenized behind."""
    before = _text_ids(tokenizer, place.before)
    whole = _text_ids(tokenizer, place.before + place.lead + text)
    if whole[: len(before)] == before:
        return whole[len(before) :], place.before + place.lead
    return _text_ids(tokenizer, place.lead + text), place.lead  # a token would be of both


def _text_ids(tokenizer: Any, text: str) -> list[int]:
    # A template's markers inside a user's text are plain text and do not end a turn.
    if not text:
        return []
    return list(tokenizer(text, add_special_tokens=False, split_special_tokens=True).input_ids)


def _spans(tokenizer: Any, text: str) -> list[tuple[int, int]]:
    """The characters (begin, end) of each token of a text."""
    if tokenizer.is_fast:
        encoded = tokenizer(
            text, add_special_tokens=False, split_special_tokens=True, return_offsets_mapping=True
        )
        return list(encoded.offset_mapping)
    ids = _text_ids(tokenizer, text)
    ends = [len(tokenizer.decode(ids[:count])) for count in range(len(ids) + 1)]
    return list(pairwise(ends))


def chat_form(tokenizer: Any) -> ChatForm:
    """The prompt form of the model that has this tokenizer.

    Raises HoldfastError for a template that fails, takes more than ten seconds, or does not put the
    user's text between two fixed texts and mark the end of a turn.
    """
    if not getattr(tokenizer, "chat_template", None):
        return _paper_form(tokenizer)
    bare, asked, answered = _rendered(tokenizer)
    if bare == asked and not answered.removeprefix(asked).partition(_ANSWER)[0].strip():
        bare = asked.partition(_QUESTION)[0] + _QUESTION  # every question ends with the beginning
    texts = bare, asked, answered
    before, user_end = bare.split(_QUESTION)
    invocation = asked[len(bare) :]
    after = answered.split(_ANSWER)[1]
    if not before:
        raise HoldfastError(
            "the model's chat template begins with the user's text, so nothing marks a question; "
            "use a model with an ordinary template, or remove it to be asked in the paper's form"
        )
    ending = _ids(tokenizer, after)
    stops = _stops(tokenizer, ending[:1])
    if not invocation.strip() or not stops:
        raise HoldfastError(
            "the model's chat template has no beginning of an answer or no end of a turn "
            "(add_generation_prompt changes nothing); use a model with an ordinary template"
        )
    end = ending[0] if ending and ending[0] in stops else min(stops)
    alone = [tuple(_ids(tokenizer, text)) for text in (before, user_end, invocation)]
    form = ChatForm(tokenizer, alone[0], alone[1], alone[2], end, stops, boxed=False)
    return _as_in_whole(form, texts, _ANSWER, ("", " "))


def turns(tokenizer: Any) -> tuple[str, str, str]:
    """A chat template's texts before a question, between question and answer, and a blank.

    The blank is white space that the template writes before a given answer, but not before one to
    be generated; often there is none. Raises HoldfastError for an unsuitable template.
    """
    _, asked, answered = _rendered(tokenizer)
    before, between = asked.split(_QUESTION)
    blank = answered.removeprefix(asked).partition(_ANSWER)[0]
    return before, between, "" if blank.strip() else blank


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


def _written(tokenizer: Any) -> str:
    """The chat template of a tokenizer; the default one if it has several."""
    try:
        return str(tokenizer.get_chat_template())
    except ValueError as error:
        raise HoldfastError(
            "the model has several chat templates and none is its default; name one of them "
            "`default` in its tokenizer_config.json"
        ) from error


def with_one_date(template: str) -> str:
    """A chat template with a fixed date, so that a model's prompts are the same on every day.

    The date is the default one of Llama's templates.
    """
    if "strftime_now" not in template and "date_string" not in template:
        return template
    day = "26 Jul 2024"
    pinned = f'{{%- set date_string = "{day}" -%}}'
    return f"{pinned}{{%- macro strftime_now(form) -%}}{day}{{%- endmacro -%}}{template}"


def _rendered(tokenizer: Any) -> tuple[str, str, str]:
    """Chats with a question, with the beginning of an answer, with an answer; dates are fixed."""
    template = _written(tokenizer)
    _refuse_growth(template)
    template = with_one_date(template)
    user = {"role": "user", "content": _QUESTION}
    assistant = {"role": "assistant", "content": _ANSWER}
    asked = _render(tokenizer, template, [user], begin=True)
    bare = _render(tokenizer, template, [user], begin=False)
    answered = _render(tokenizer, template, [user, assistant], begin=False)
    if asked.count(_QUESTION) != 1 or not asked.startswith(bare) or _ANSWER not in answered:
        raise HoldfastError(
            "the model's chat template does not put the user's text before the answer's beginning; "
            "use a model with an ordinary template, or remove it to be asked in the paper's form"
        )
    return bare, asked, answered


def _as_in_whole(
    form: ChatForm, texts: tuple[str, str, str], answer: str, leads: tuple[str, ...]
) -> ChatForm:
    """The form with the pieces that the whole text has, if the question's tokens are its own.

    form: of pieces tokenized alone; texts: as of :func:`_rendered`; leads: of places to try.
    """
    tokenizer = form.tokenizer
    bare, asked, answered = (_ids(tokenizer, text) for text in texts)
    places = [Place(before, lead) for lead in leads for before in ("", "\n")]
    if asked[: len(bare)] != bare:
        return form
    for place in places:
        question, _ = _placed(tokenizer, _QUESTION, place)
        starts = [n for n in range(1, len(bare)) if bare[n : n + len(question)] == question]
        if len(starts) == 1:
            start, end = starts[0], starts[0] + len(question)
            return replace(
                form,
                prefix=tuple(bare[:start]),
                user_end=tuple(bare[end:]),
                invocation=tuple(asked[len(bare) :]),
                question_place=place,
                answer_place=_answer_place(tokenizer, asked, answered, answer, places),
            )
    return form


def _answer_place(
    tokenizer: Any, asked: list[int], answered: list[int], answer: str, places: list[Place]
) -> Place:
    """The first place at which the answer's tokens are those of the whole text."""
    for place in places:
        tokens, _ = _placed(tokenizer, answer, place)
        if answered[: len(asked) + len(tokens)] == [*asked, *tokens]:
            return place
    return places[0]  # none fits: the template writes a given answer otherwise


def _paper_form(tokenizer: Any) -> ChatForm:
    r"""``Question: q\nAnswer: \boxed{a}``; source: the paper's template."""
    stops = _stops(tokenizer, [])
    if not stops:
        raise HoldfastError(
            "the model's tokenizer has neither a chat template nor an end-of-sequence token, so an "
            "answer would not end; set tokenizer.eos_token and save the tokenizer"
        )
    begin = () if tokenizer.bos_token_id is None else (tokenizer.bos_token_id,)
    bare = f"Question: {_QUESTION}\n"
    answer = f"\\boxed{{{_ANSWER}}}"
    texts = (bare, f"{bare}Answer:", f"{bare}Answer: {answer}")
    alone = [tuple(_ids(tokenizer, text)) for text in ("Question:", "\n", "Answer:")]
    place, end = Place(lead=" "), min(stops)
    form = ChatForm(tokenizer, alone[0], alone[1], alone[2], end, stops, True, place, place)
    form = _as_in_whole(form, texts, answer, (" ", ""))
    return replace(form, prefix=(*begin, *form.prefix))


def _stops(tokenizer: Any, ending: list[int]) -> frozenset[int]:
    """The tokens of ``ending`` that are special or added, and the end of a sequence."""
    special = set(tokenizer.all_special_ids) | set(tokenizer.added_tokens_decoder)
    stops = special & set(ending)
    if tokenizer.eos_token_id is not None:
        stops.add(tokenizer.eos_token_id)
    return frozenset(stops)


def _ids(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False).input_ids)


def _refuse_growth(template: str) -> None:
    """Refuse a template whose product of numbers may take for ever and stop all threads."""
    try:
        tokens = [token for token in Environment().lex(template) if token[1] != "whitespace"]
    except TemplateSyntaxError:
        return  # rendering reports it
    for place, (line, kind, text) in enumerate(tokens):
        beside = {tokens[near][1] for near in (place - 1, place + 1) if 0 <= near < len(tokens)}
        grows = text == "**" or (text == "*" and not beside & {"integer", "string"})
        if kind == "operator" and grows:
            raise HoldfastError(
                f"the model's chat template multiplies in line {line} ({text}), which may take "
                "for ever; use a model with an ordinary template, or remove it to be asked in "
                "the paper's form"
            )


def _render(tokenizer: Any, template: str, messages: list[dict[str, str]], *, begin: bool) -> str:
    """The template's text, rendered in a thread, so that an endless loop can be given up."""
    outcome: list[Any] = []

    def render() -> None:
        try:
            text = tokenizer.apply_chat_template(
                messages, add_generation_prompt=begin, tokenize=False, chat_template=template
            )
            outcome.append(text)
        except Exception as error:  # noqa: BLE001 - a template raises what it likes
            outcome.append(error)

    thread = threading.Thread(target=render, daemon=True)
    thread.start()
    thread.join(_RENDER_SECONDS)
    if not outcome:
        raise HoldfastError(
            f"the model's chat template did not end within {_RENDER_SECONDS:.0f} s; use a model "
            "with an ordinary template"
        )
    if isinstance(outcome[0], Exception):
        reason = " ".join(str(outcome[0]).split())[:200]
        raise HoldfastError(
            f"the model's chat template fails ({reason}); use a model with an ordinary template"
        )
    return str(outcome[0])
