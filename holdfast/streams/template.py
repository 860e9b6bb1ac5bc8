"""How an item becomes a sequence of tokens, in training and at evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from pydantic import Field

from holdfast.core import config as core_config
from holdfast.core.errors import HoldfastError
from holdfast.streams.item import Item, quoted
from holdfast.streams.stream import Stream, place_of


class Tokenizer(Protocol):
    """What is asked of a tokenizer: the call that those of transformers answer."""

    def __call__(self, text: str, /, *, add_special_tokens: bool) -> Mapping[str, Any]:
        """Return ``{"input_ids": [id, ...]}`` for one text."""


_ANSWER = "\nAnswer:"


class Template:
    r"""``Question: q\nAnswer: \boxed{a}``, and up to ``Answer:`` at evaluation.

    seed_token, everywhere: the id of the replay token, or None when the method has no data anchor.
    eos, everywhere: the id of the end-of-sequence token, or None when the tokenizer has none; it
    is used only with ``append_eos``.

    Source: eq. app-replay-render.
    """

    class Config(core_config.Config):
        """append_eos: train on an end-of-sequence token; max_length: tokens, all included."""

        append_eos: bool = False
        max_length: int = Field(default=384, gt=0)

    def __init__(self, config: Config | None = None) -> None:
        self.config = config or Template.Config()

    def text(self, item: Item) -> str:
        """The sequence that is trained on, as text."""
        return f"{self.prompt(item)} \\boxed{{{item.answer}}}"

    def prompt(self, item: Item) -> str:
        """The text from which the model answers; it ends before the space, as tokens do."""
        return f"Question: {item.question}{_ANSWER}"

    def asked(self, text: str) -> str:
        """The part of a text that asks: all before its answer begins."""
        return text.partition(_ANSWER)[0]

    def encode(
        self, item: Item, tokenizer: Tokenizer, seed_token: int | None, eos: int | None
    ) -> list[int]:
        """The training sequence, token ids: ``[seed_token] + text + [eos]``.

        Raises HoldfastError when it exceeds ``max_length``, as its answer would be cut.
        """
        ids = self._sequence(item, tokenizer, seed_token, eos)
        if len(ids) > self.config.max_length:
            raise HoldfastError(f"question {quoted(item.question)} {self._too_long(len(ids))}")
        return ids

    def encode_prompt(self, item: Item, tokenizer: Tokenizer, seed_token: int | None) -> list[int]:
        """The evaluation prompt, token ids: ``[seed_token] + prompt``."""
        return _with_seed(self.prompt(item), tokenizer, seed_token)

    def encode_stream(
        self, stream: Stream, tokenizer: Tokenizer, seed_token: int | None, eos: int | None
    ) -> list[list[list[int]]]:
        """The training sequences of every task, in order: ``[task][item][token]``.

        To be called before anything is trained. Raises HoldfastError naming the task and the first
        item that exceeds ``max_length``, how many do, and the length that would hold them all.
        """
        tasks = [
            [self._sequence(item, tokenizer, seed_token, eos) for item in task.items]
            for task in stream.tasks
        ]
        self._refuse_long(stream, tasks)
        return tasks

    def _sequence(
        self, item: Item, tokenizer: Tokenizer, seed_token: int | None, eos: int | None
    ) -> list[int]:
        ids = _with_seed(self.text(item), tokenizer, seed_token)
        if not self.config.append_eos:
            return ids
        if eos is None:
            raise HoldfastError(
                "the tokenizer has no end-of-sequence token; set template.append_eos to false"
            )
        return [*ids, eos]

    def _refuse_long(self, stream: Stream, tasks: list[list[list[int]]]) -> None:
        long = [
            (len(ids), place_of(task, number), item)
            for task, sequences in zip(stream.tasks, tasks, strict=True)
            for number, (item, ids) in enumerate(zip(task.items, sequences, strict=True), start=1)
            if len(ids) > self.config.max_length
        ]
        if long:
            length, place, item = long[0]
            raise HoldfastError(
                f"{place}: question {quoted(item.question)} {self._too_long(length)} "
                f"({len(long)} of the stream's items are too long, the longest needs "
                f"{max(length for length, _, _ in long)})"
            )

    def _too_long(self, length: int) -> str:
        return (
            f"needs {length} tokens, so its answer would be cut at template.max_length = "
            f"{self.config.max_length}; shorten it or raise the limit"
        )


def _with_seed(text: str, tokenizer: Tokenizer, seed_token: int | None) -> list[int]:
    ids = list(tokenizer(text, add_special_tokens=False)["input_ids"])
    return ids if seed_token is None else [seed_token, *ids]
