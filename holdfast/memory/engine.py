"""The loaded model of a memory: read questions, swap adapters, answer."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.core.reporting import CountReport
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
from holdfast.model.layers import context_of
from holdfast.model.load import load_model
from holdfast.model.reading import PromptReader, Reading
from holdfast.model.sources.fingerprint import fingerprint
from holdfast.streams.item import clean, quoted

_ADAPTERS = 16  # kept in RAM; 4 MB per lesson of SmolLM2-135M, 40 MB once consolidated
_LOOKS = 16_384  # kept in RAM, some 40 MB
LONGEST_QUESTION = 512  # tokens
LONGEST_ANSWER = 256  # tokens, of a taught answer or of the untouched model's
_READ = 64  # questions per pass


@dataclass(frozen=True)
class Limits:
    """The longest question and answer, in tokens of a chat form, that a model reads and learns."""

    form: ChatForm
    question: int
    answer: int

    def question_tokens(self, question: str) -> list[int]:
        """A question's tokens. Raises HoldfastError if it is empty, no valid text, or too long."""
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
        """Raise HoldfastError for a fact that is too long or that the tokenizer changes."""
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
    """512 and 256 tokens, or less so that the context of a model's configuration holds both."""
    context = context_of(config)
    if context is None:
        return Limits(form, LONGEST_QUESTION, LONGEST_ANSWER)
    room = context - len(form.prefix) - len(form.invocation)
    answer = min(LONGEST_ANSWER, room // 2)
    return Limits(form, min(LONGEST_QUESTION, room - answer), answer)


@dataclass(frozen=True)
class Adapter:
    """A learned adapter. name: of its file; load: reads its factors.

    whole_turn: whether it acts on the common prefix and the question too, not only from the
    invocation on.
    """

    name: str
    load: Callable[[], State]
    whole_turn: bool = False


class Engine:
    """The untouched model, one adapter that each lesson fills, and the model's gate tuning."""

    def __init__(self, directory: Path, report: CountReport) -> None:
        """directory: the model's; report(done, total): fitting the gate, once per model."""
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
        """Read questions with the untouched model; return also what the gate compares of each."""
        prompts = [self.limits.question_tokens(question) for question in questions]
        readings = self.reader.read(prompts, depths=self.tuning.depths)
        looks = [
            self.tuning.look(question.strip(), self.form.spans(question), reading.states.cpu())
            for question, reading in zip(questions, readings, strict=True)
            if reading.states is not None
        ]
        return [replace(reading, states=None) for reading in readings], looks

    def looks(self, questions: Sequence[str]) -> list[QuestionLook]:
        """What the gate compares of questions; it is cached, and only the lower layers run."""
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

    def greedy_answers(self, readings: Sequence[Reading], longest: int | None = None) -> list[str]:
        """Greedy answers of the model as it acts now, at most ``longest`` (256) tokens each."""
        limit = self.limits.answer if longest is None else min(longest, self.limits.answer)
        decoded = self.reader.decode(readings, limit)
        return [self.form.text(tokens) for tokens in decoded]

    @contextlib.contextmanager
    def using(
        self, adapter: Adapter, readings: Sequence[Reading] = ()
    ) -> Iterator[Sequence[Reading]]:
        """Let an adapter act during the block; yield the readings from which it answers.

        readings: by the untouched model; an adapter of whole turns reads their tokens again.
        """
        self._use(adapter)
        with adapted(self.reader.model):
            if not adapter.whole_turn:
                yield readings
                return
            with self.reader.own_prefix():
                yield self.reader.read([reading.tokens for reading in readings])

    def answers_given(self, readings: Sequence[Reading], answers: Sequence[str]) -> list[bool]:
        """Whether greedy decoding would give each answer and stop, by teacher-forced passes."""
        tokens = [self.form.answer(answer) for answer in answers]
        return [margin > 0 for margin in self.reader.margins(readings, tokens)]

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
        """Attach factors of a shape, to be trained or filled. shape: None for that of a lesson."""
        shape = shape or self._lesson_shape
        self._loaded = None
        if shape != self._attached:
            detach(self.reader.model)
            attach(self.reader.model, shape)
            self._attached = shape

    def bare_model(self) -> Any:
        """The model without factors, until an adapter is used or attached again."""
        detach(self.reader.model)
        self._attached = self._loaded = None
        return self.reader.model

    def upper_layers(self, start: float, rank: int) -> AdapterShape:
        """The shape of an adapter above the fraction ``start`` of the layers; detaches factors."""
        model = self.bare_model()
        count = model.config.get_text_config().num_hidden_layers
        alpha = round(rank * self._lesson_shape.scale)
        return shape_on(model, int(count * start), rank, alpha)
