"""A loaded model with what a memory does to it: read questions, swap adapters, answer."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from holdfast.core.errors import HoldfastError
from holdfast.memory.gate import GateTuning, QuestionLook
from holdfast.memory.gate_tuning import prepared_tuning
from holdfast.memory.lesson import LessonSettings, shape_for
from holdfast.model.adapter import (
    AdapterShape,
    State,
    adapted,
    attach,
    detach,
    load_state,
    shape_like,
    shape_on,
)
from holdfast.model.chat import ChatForm, chat_form
from holdfast.model.context import context_of
from holdfast.model.fingerprint import fingerprint
from holdfast.model.load import load_model
from holdfast.model.reading import PromptReader, Reading
from holdfast.streams.item import clean, quoted

_ADAPTERS = 16  # kept in RAM, at most 4 MB each
_LOOKS = 16_384  # kept in RAM, some 20 MB
LONGEST_QUESTION = 512  # tokens
LONGEST_ANSWER = 256  # tokens, taught or of the model's own
_READ = 64  # questions at once
_ANSWERS = 32  # at once


@dataclass(frozen=True)
class Limits:
    """The longest question and answer, in tokens, that are read and learned in a form."""

    form: ChatForm
    question: int
    answer: int

    def question_tokens(self, question: str) -> list[int]:
        """A question's tokens. Raises HoldfastError when it is empty, no text, or too long."""
        clean("question", question, "write one")
        tokens = self.form.question(question)
        if len(tokens) > self.question:
            raise HoldfastError(
                f"the question has {len(tokens)} tokens, and at most {self.question} are read; "
                "ask a shorter one"
            )
        return tokens

    def fits(self, question: str) -> bool:
        """Whether a question is short enough."""
        return len(self.form.question(question)) <= self.question

    def check_fact(self, question: str, answer: str) -> None:
        """Raise HoldfastError for a fact that a model of this form cannot be taught."""
        if not self.fits(question):
            raise HoldfastError(
                f"the question {quoted(question)} has {len(self.form.question(question))} tokens, "
                f"and at most {self.question} are read; shorten it"
            )
        tokens = self.form.answer(answer)
        if len(tokens) > self.answer:
            raise HoldfastError(
                f"the answer to {quoted(question)} has {len(tokens)} tokens, and at most "
                f"{self.answer} are learned; shorten it, or split it into several facts"
            )
        if self.form.text(tokens[:-1]) != answer.strip():
            raise HoldfastError(
                f"the answer to {quoted(question)} does not come back from this model's tokens "
                "as it was written (a symbol that its tokenizer changes); write it otherwise"
            )


def limits_of(form: ChatForm, config: Any) -> Limits:
    """The limits of a model: 512 and 256 tokens, or what its context holds together.

    config: the model's, of transformers.
    """
    context = context_of(config)
    if context is None:
        return Limits(form, LONGEST_QUESTION, LONGEST_ANSWER)
    room = context - len(form.prefix) - len(form.invocation)
    answer = min(LONGEST_ANSWER, room // 2)
    return Limits(form, min(LONGEST_QUESTION, room - answer), answer)


@dataclass(frozen=True)
class Adapter:
    """A learned adapter.

    name: its own; load: reads its factors; whole_turn: whether it reads what is asked too, and the
    common prefix; else it acts from the invocation on.
    """

    name: str
    load: Callable[[], State]
    whole_turn: bool = False


class Engine:
    """The untouched model, an adapter that lessons fill, and the gate's tuning for this model."""

    def __init__(self, directory: Path, report: Callable[[int, int], None]) -> None:
        """directory: the model's; report(done, total): the preparation, once a model."""
        self.settings = LessonSettings()
        self.fingerprint = fingerprint(directory)
        model, tokenizer = load_model(directory)
        self.form = chat_form(tokenizer)
        self.reader = PromptReader(model, self.form)
        self.limits = limits_of(self.form, model.config)
        self._lesson_shape = shape_for(self.reader, self.settings)
        self._attached: AdapterShape | None = None  # until an adapter is used or trained
        self.tuning: GateTuning = prepared_tuning(self.reader, self.fingerprint, report)
        self._states: OrderedDict[str, State] = OrderedDict()
        self._looks: OrderedDict[str, QuestionLook] = OrderedDict()
        self._loaded: str | None = None

    def read(self, questions: Sequence[str]) -> tuple[list[Reading], list[QuestionLook]]:
        """Read questions with the untouched model; also what the gate compares of them."""
        prompts = [self.limits.question_tokens(question) for question in questions]
        readings = self.reader.read(prompts, depths=self.tuning.depths)
        looks = [
            self.tuning.look(question.strip(), self.form.spans(question), reading.states.cpu())
            for question, reading in zip(questions, readings, strict=True)
            if reading.states is not None
        ]
        return [replace(reading, states=None) for reading in readings], looks

    def looks(self, questions: Sequence[str]) -> list[QuestionLook]:
        """What the gate compares of questions, which only the lower layers read, each once."""
        new = [text for text in dict.fromkeys(questions) if text not in self._looks]
        for begin in range(0, len(new), _READ):
            group = new[begin : begin + _READ]
            prompts = [self.limits.question_tokens(question) for question in group]
            states = self.reader.states(prompts, self.tuning.depths)
            for question, state in zip(group, states, strict=True):
                spans = self.form.spans(question)
                self._looks[question] = self.tuning.look(question.strip(), spans, state.cpu())
        looks = [self._looks[question] for question in questions]
        while len(self._looks) > _LOOKS:
            self._looks.popitem(last=False)
        return looks

    def untouched_answers(
        self, readings: Sequence[Reading], longest: int | None = None
    ) -> list[str]:
        """What the untouched model answers, at most ``longest`` tokens each (256 by default)."""
        limit = self.limits.answer if longest is None else min(longest, self.limits.answer)
        decoded = self.reader.decode(readings, limit)
        return [self.form.text(tokens) for tokens in decoded]

    @contextlib.contextmanager
    def using(
        self, adapter: Adapter, readings: Sequence[Reading] = ()
    ) -> Iterator[Sequence[Reading]]:
        """Within the block an adapter acts; yields what its answers go on from.

        readings: of the questions, by the untouched model. The adapter's factors are read when they
        are not in RAM.
        """
        self._use(adapter)
        with adapted(self.reader.model):
            if not adapter.whole_turn:
                yield readings
                return
            with self.reader.own_prefix():
                yield self.reader.read([reading.tokens for reading in readings])

    @torch.no_grad()
    def answers_given(self, readings: Sequence[Reading], answers: Sequence[str]) -> list[bool]:
        """Whether greedy decoding, with what acts now, gives each answer and ends: by passes."""
        tokens, given = [self.form.answer(answer) for answer in answers], []
        for begin in range(0, len(tokens), _ANSWERS):
            group = slice(begin, begin + _ANSWERS)
            logits = self.reader.answer_logits(readings[group], tokens[group])
            given += (logits.margins() > 0).tolist()
        return given

    def _use(self, adapter: Adapter) -> None:
        name = adapter.name
        if name not in self._states:
            self._states[name] = adapter.load()
            while len(self._states) > _ADAPTERS:
                self._states.popitem(last=False)
        self._states.move_to_end(name)
        if self._loaded != name:
            self._loaded = None
            state = self._states[name]
            try:
                self.attach_shape(shape_like(self.reader.model, state, self._lesson_shape.scale))
                load_state(self.reader.model, state)
            except (IndexError, KeyError, AttributeError, ValueError, RuntimeError) as error:
                raise HoldfastError(
                    f"lesson {name}: its adapter is of another shape than lessons have here; teach "
                    "the facts of facts.jsonl to a new memory"
                ) from error
            self._loaded = name

    def attach_shape(self, shape: AdapterShape | None = None) -> None:
        """Put factors of a shape, a lesson's by default, on the model, to be trained or filled."""
        shape = shape or self._lesson_shape
        self._loaded = None
        if shape != self._attached:
            detach(self.reader.model)
            attach(self.reader.model, shape)
            self._attached = shape

    def bare_model(self) -> Any:
        """The model, with no factors on it until an adapter is used or attached again."""
        detach(self.reader.model)
        self._attached = self._loaded = None
        return self.reader.model

    def upper_layers(self, start: float, rank: int) -> AdapterShape:
        """The shape of an adapter on all layers but the first ``start`` of them, a fraction."""
        model = self.bare_model()
        count = model.config.get_text_config().num_hidden_layers
        alpha = round(rank * self._lesson_shape.scale)
        return shape_on(model, int(count * start), rank, alpha)
