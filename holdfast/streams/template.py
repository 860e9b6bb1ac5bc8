"""Render an item as a sequence of tokens, for training and evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from pydantic import Field

from holdfast.core import config as core_config
from holdfast.core.errors import HoldfastError
from holdfast.streams.item import Item, check_boxed, quoted
from holdfast.streams.stream import Stream, Task, items_of


class Tokenizer(Protocol):
    """The part of the transformers tokenizer interface that the template uses."""

    def __call__(self, text: str, /, *, add_special_tokens: bool) -> Mapping[str, Any]:
        """Return ``{"input_ids": [id, ...]}`` for one text."""


@dataclass(frozen=True)
class Form:
    r"""The texts around a question and its answer.

    before, between: before and after the question, together the prompt; opening, end: before and
    after the answer; boxed: whether these are ``\boxed{`` and its brace; marks: texts of special
    tokens, which no question or answer may hold.
    """

    before: str
    between: str
    opening: str
    end: str
    boxed: bool
    marks: tuple[str, ...] = ()


PAPER = Form("Question: ", "\nAnswer:", " \\boxed{", "}", boxed=True)


class Template:
    r"""``Question: q\nAnswer: \boxed{a}`` in training; the text up to ``Answer:`` at evaluation.

    The chat form, a model's own chat template, has other texts around both, and no box.
    In every method, seed_token is the id of the replay token, or None without a data anchor, and
    eos the id of the end-of-sequence token, or None if the tokenizer has none; eos is used only
    with ``append_eos``.

    Source: eq. app-replay-render.
    """

    class Config(core_config.Config):
        """max_length: the most tokens of a whole sequence.

        form: the paper's, or ``chat``, the model's own chat template, in which the end of a turn
        ends the answer, and the loss is on answers only, unless an anchor needs whole sequences.
        append_eos: train on an end-of-sequence token; ignored in the chat form.

        overlong: what to do with longer items: ``refuse`` the stream, ``truncate`` their sequences,
        whose answers are then not fully learned, or ``drop`` them from the stream.
        """

        form: Literal["paper", "chat"] = "paper"
        append_eos: bool = False
        max_length: int = Field(default=384, gt=0)
        overlong: Literal["refuse", "truncate", "drop"] = "refuse"

        @property
        def has_end(self) -> bool:
            """Whether a sequence ends with a token at which generation stops."""
            return self.append_eos or self.form == "chat"

    def __init__(self, config: Config | None = None, form: Form = PAPER) -> None:
        """form: the texts of ``config.form``; ``holdfast.model.chat`` finds a model's."""
        self.config = config or Template.Config()
        self.form = form

    def text(self, item: Item) -> str:
        """The training text of an item."""
        return f"{self.prompt(item)}{self.form.opening}{item.answer}{self.form.end}"

    def prompt(self, item: Item) -> str:
        """The evaluation prompt as text. The space after it belongs to the answer's first token.

        Raises HoldfastError for an item that holds the text of one of the form's special tokens.
        """
        for mark in self.form.marks:
            if mark in item.question or mark in item.answer:
                raise HoldfastError(
                    f"question {quoted(item.question)} or its answer holds {mark}, a special token "
                    "of the model, which would end a turn; write it otherwise"
                )
        return f"{self.form.before}{item.question}{self.form.between}"

    def asked(self, text: str) -> str:
        """The beginning of a rendered text, up to the end of its question."""
        return text.partition(self.form.between)[0]

    def as_paper(self, text: str) -> str:
        """Rewrite a text of this form, which may be cut or malformed anywhere, in the paper's."""
        if self.form == PAPER:
            return text
        asked, between, answer = text.removeprefix(self.form.before).partition(self.form.between)
        whole = f"{PAPER.before}{asked}"
        if between:
            answered = answer.removeprefix(self.form.opening).partition(self.form.end)[0]
            whole += f"{PAPER.between}{PAPER.opening}{answered}"
        return whole + PAPER.end if self.form.end in answer else whole

    def stops(self, tokenizer: Tokenizer, stop_tokens: frozenset[int]) -> int:
        """How many stop tokens a complete training sequence has, at least one."""
        ids = tokenizer(self.text(Item("?", "?")), add_special_tokens=False)["input_ids"]
        return max(1, sum(token in stop_tokens for token in ids))

    def encode(
        self, item: Item, tokenizer: Tokenizer, seed_token: int | None, eos: int | None
    ) -> list[int]:
        """The training sequence, token ids: ``[seed_token] + text + [eos]``.

        Raises HoldfastError when it exceeds ``max_length`` and is not to be truncated, or when
        nothing of the answer would be left.
        """
        ids = self._sequence(item, tokenizer, seed_token, eos)
        limit = self.config.max_length
        if len(ids) <= limit:
            return ids
        asked = f"question {quoted(item.question)}"
        if self.config.overlong != "truncate":
            raise HoldfastError(f"{asked} {self._too_long(len(ids))}")
        if len(self.encode_prompt(item, tokenizer, seed_token)) >= limit:
            raise HoldfastError(
                f"{asked} leaves no token of its answer within template.max_length = {limit}; "
                "shorten it or raise the limit"
            )
        return ids[:limit]

    def encode_prompt(self, item: Item, tokenizer: Tokenizer, seed_token: int | None) -> list[int]:
        """The evaluation prompt, token ids: ``[seed_token] + prompt``."""
        return _with_seed(self.prompt(item), tokenizer, seed_token)

    def encode_answer(self, item: Item, tokenizer: Tokenizer) -> list[int]:
        """The token ids that a model must generate after :meth:`encode_prompt`."""
        prompt, text = self.prompt(item), self.text(item)
        asked, whole = _with_seed(prompt, tokenizer, None), _with_seed(text, tokenizer, None)
        if whole[: len(asked)] == asked:
            return whole[len(asked) :]
        # The model continues the prompt's own tokens, even if the whole text splits otherwise.
        return _with_seed(text.removeprefix(prompt), tokenizer, None)

    def check_stream(
        self,
        stream: Stream,
        tokenizer: Tokenizer,
        seed_token: int | None,
        eos: int | None,
        *,
        longest_answer: int | None = None,
        learned: int = 0,
        context: int | None = None,
    ) -> int:
        """Count the items of a stream that are truncated; call it before any training.

        longest_answer: tokens that evaluation generates for an answer, None for no limit; learned:
        tasks learned already, whose answers may need more; context: the model's positions.
        Raises HoldfastError naming the first item whose answer cannot be read back from a box; that
        exceeds ``max_length``, unless it is truncated; of whose answer truncation leaves nothing;
        that exceeds ``context``; or whose answer exceeds ``longest_answer``.
        """
        for place, item in items_of(stream.tasks) if self.form.boxed else ():
            try:
                check_boxed(item)
            except HoldfastError as error:
                raise HoldfastError(f"{place}: {error}") from None
        limit = self.config.max_length
        rows = self._lengths(stream, tokenizer, seed_token, eos)
        long = [row for row in rows if row[0] > limit]
        if long and self.config.overlong != "truncate":
            length, place, item = long[0]
            raise HoldfastError(
                f"{place}: question {quoted(item.question)} {self._too_long(length)} "
                f"({len(long)} of the stream's items are too long, the longest needs "
                f"{max(length for length, _, _ in long)})"
            )
        for _, _, item in long:
            self.encode(item, tokenizer, seed_token, eos)
        for length, place, item in rows:
            if context is not None and min(length, limit) > context:
                raise HoldfastError(
                    f"{place}: question {quoted(item.question)} needs {min(length, limit)} tokens, "
                    f"and the model takes {context} together; shorten it"
                )
        if longest_answer is None:
            return len(long)
        cut = {id(item) for _, _, item in long}
        for place, item in items_of(stream.tasks[learned:]):
            length = 0 if id(item) in cut else len(self.encode_answer(item, tokenizer))
            if length > longest_answer:
                raise HoldfastError(
                    f"{place}: the answer to {quoted(item.question)} needs {length} tokens, so it "
                    f"would never be recalled with evaluation.max_new_tokens = {longest_answer}; "
                    "shorten it or raise the limit"
                )
        return len(long)

    def fitting(
        self, stream: Stream, tokenizer: Tokenizer, seed_token: int | None, eos: int | None
    ) -> Stream:
        """The stream without the items that exceed ``max_length``.

        Raises HoldfastError naming a task of which no item is left.
        """
        rows = self._lengths(stream, tokenizer, seed_token, eos)
        long = {id(item) for length, _, item in rows if length > self.config.max_length}
        tasks = []
        for task in stream.tasks:
            items = tuple(item for item in task.items if id(item) not in long)
            if not items:
                raise HoldfastError(
                    f"task {quoted(task.name)}: every item needs more than template.max_length = "
                    f"{self.config.max_length} tokens; raise the limit or leave the task out"
                )
            tasks.append(Task(task.name, items))
        return replace(stream, tasks=tuple(tasks)) if long else stream

    def _sequence(
        self, item: Item, tokenizer: Tokenizer, seed_token: int | None, eos: int | None
    ) -> list[int]:
        if self.config.form == "chat":
            # The answer's tokens as at evaluation, even if a token would span prompt and answer.
            asked = self.encode_prompt(item, tokenizer, seed_token)
            return [*asked, *self.encode_answer(item, tokenizer)]
        ids = _with_seed(self.text(item), tokenizer, seed_token)
        if not self.config.append_eos:
            return ids
        if eos is None:
            raise HoldfastError(
                "the tokenizer has no end-of-sequence token; set template.append_eos to false"
            )
        return [*ids, eos]

    def _lengths(
        self, stream: Stream, tokenizer: Tokenizer, seed_token: int | None, eos: int | None
    ) -> list[tuple[int, str, Item]]:
        """(number of tokens, place, item) of every item."""
        return [
            (len(self._sequence(item, tokenizer, seed_token, eos)), place, item)
            for place, item in items_of(stream.tasks)
        ]

    def _too_long(self, length: int) -> str:
        return (
            f"needs {length} tokens, so its answer would be cut at template.max_length = "
            f"{self.config.max_length}; shorten it, raise the limit, or see template.overlong"
        )


def _with_seed(text: str, tokenizer: Tokenizer, seed_token: int | None) -> list[int]:
    ids = list(tokenizer(text, add_special_tokens=False)["input_ids"])
    if seed_token is None:
        return ids
    if seed_token in ids:
        raise HoldfastError(
            f"{quoted(text)} holds the text of the replay token, which begins a sequence and "
            "stands nowhere else; write it otherwise"
        )
    return [seed_token, *ids]
