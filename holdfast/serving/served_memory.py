"""A memory that answers step by step: taught answers at once, the model's own by token.

Where an answer comes from is known once its question is read, before its first token.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.builders.text_model import text_before
from holdfast.core.errors import HoldfastError
from holdfast.memory.answering import Answer
from holdfast.memory.memory import Memory
from holdfast.memory.telling import answer_values
from holdfast.model.reading import Reading
from holdfast.serving.answers import NOT_TAUGHT, Answered, AskedQuestion, Event, Piece, Steps
from holdfast.serving.refusal import RefusalError, refusal_of


class ServedMemory:
    """Answers with a memory. Only one thread may call it."""

    # At once; each keeps up to 768 tokens' keys and values, 35 MB with smollm2.
    max_answers = 16

    def __init__(self, memory: Memory, *, taught_only: bool = False) -> None:
        self.memory = memory
        self._taught_only = taught_only

    def answering(self, questions: Sequence[AskedQuestion]) -> Steps:
        """Answer questions; each step yields events, the last of a question its whole answer."""
        results = self._taught([question.text for question in questions])
        events: list[tuple[int, Event]] = []
        drafts: list[_Draft] = []
        readings = []
        for number, (question, result) in enumerate(zip(questions, results, strict=True)):
            if isinstance(result, HoldfastError | RefusalError):
                events.append((number, result))
            elif isinstance(result, Answer):
                values = answer_values(self.memory, result)
                events.append((number, self._whole(question.text, result.text, values)))
            else:
                values = answer_values(self.memory, Answer(question.text, "", "model"))
                if self._taught_only:
                    values |= {"answer": None, "source": None}
                    events.append((number, self._whole(question.text, NOT_TAUGHT, values)))
                    continue
                drafts.append(_Draft(self.memory, number, question, values))
                readings.append(result)
                first = {key: values[key] for key in ("source", "taught", "fact")}
                events.append((number, Piece("", first)))
        yield events
        if drafts:
            yield from self._drafted(drafts, readings)

    def _taught(
        self, questions: Sequence[str]
    ) -> list[Answer | Reading | HoldfastError | RefusalError]:
        """As :meth:`Answerer.taught`, but a question with an error affects no other."""
        try:
            return [*self.memory.answerer().taught(questions)]
        except HoldfastError as error:
            if self._refreshed():  # another process has replaced a lesson
                return self._taught(questions)
            if len(questions) == 1:
                return [self._refused(questions[0], error)]
        return [self._taught([question])[0] for question in questions]

    def _refreshed(self) -> bool:
        with contextlib.suppress(HoldfastError):  # what is loaded goes on answering
            return self.memory.refresh()
        return False

    def _refused(self, question: str, error: HoldfastError) -> HoldfastError | RefusalError:
        """Why the question cannot be read; or status 500, since a lesson is damaged."""
        try:
            self.memory.limits().question_tokens(question)
        except HoldfastError as wrong:
            return wrong
        return refusal_of(error, status=500, code="memory")

    def _whole(self, question: str, content: str, values: dict[str, Any]) -> Answered:
        form = self.memory.engine().form
        return Answered(content, values, len(form.question(question)), len(form.answer(content)))

    def _drafted(self, drafts: Sequence[_Draft], readings: Sequence[Reading]) -> Steps:
        """Write the untouched model's answers at the same time, a token of each in a step."""
        limit = max(draft.most for draft in drafts)
        for tokens in self.memory.engine().reader.steps(readings, limit):
            yield [
                (draft.number, event)
                for draft, token in zip(drafts, tokens, strict=True)
                if not draft.done and (event := draft.grown(token)) is not None
            ]
            if all(draft.done for draft in drafts):
                return
        yield [(draft.number, draft.ended("stop")) for draft in drafts if not draft.done]


@dataclass
class _Draft:
    """An answer that the untouched model is writing.

    number: of its question, in the batch; values: what is known of it when the question is read.
    """

    memory: Memory
    number: int
    question: AskedQuestion
    values: dict[str, Any]
    tokens: list[int] = field(default_factory=list)
    sent: str = ""
    done: bool = False

    @property
    def most(self) -> int:
        limit = self.memory.limits().answer
        return min(self.question.most or limit, limit)

    def grown(self, token: int | None) -> Event | None:
        """Add a token, or None at the end; the event for what is new, if anything is."""
        if token is None:
            return self.ended("stop")
        self.tokens.append(token)
        text, stops = self.memory.engine().form.growing(self.tokens), self.question.stops
        if text_before(stops, text) != text:
            return self.ended("stop")
        if len(self.tokens) == self.most:
            return self.ended("length")
        text = text[: len(text) - _held_back(stops, text)]
        if not text.startswith(self.sent) or text == self.sent:
            return None
        new = text[len(self.sent) :]
        self.sent = text
        return Piece(new, {})

    def ended(self, finish: str) -> Answered:
        self.done = True
        form = self.memory.engine().form
        text = text_before(self.question.stops, form.text(self.tokens))
        values = {**self.values, "answer": text}
        question_tokens = len(form.question(self.question.text))
        return Answered(text, values, question_tokens, len(self.tokens), finish)


def _held_back(stops: Sequence[str], text: str) -> int:
    """How many characters at the end of an unfinished text may be the beginning of a stop."""
    sizes = (
        size
        for stop in stops
        for size in range(1, min(len(stop), len(text) + 1))
        if text.endswith(stop[:size])
    )
    return max(sizes, default=0)
