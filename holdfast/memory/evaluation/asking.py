"""Ask a memory, its weights alone, its list alone and the untouched model the same questions."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from holdfast.core.reporting import CountReport
from holdfast.memory.answering import Answer, Answerer
from holdfast.memory.engine import Engine
from holdfast.model.neurons import Neurons, acting
from holdfast.model.reading import Reading
from holdfast.streams.item import question_key

LONGEST = 32  # the most tokens of a reply that is not a taught answer
_AT_ONCE = 32  # questions
_Result = TypeVar("_Result")


class Sides:
    """Greedy answers of a memory and of its parts; the untouched model's replies are cached.

    "The weights" are the neurons of all facts, which act at every token, or else the adapter of a
    fact's lesson, whatever the gate would decide; questions about no fact can then be asked only
    of a memory with a single adapter.
    """

    def __init__(self, engine: Engine, answerer: Answerer, neurons: Neurons | None = None) -> None:
        self.engine, self.answerer, self._neurons = engine, answerer, neurons
        self.facts = answerer.facts
        self._places = {question_key(fact.question): n for n, fact in enumerate(self.facts)}
        self.has_one_set = neurons is not None or len(answerer.adapter_names) == 1
        self._untouched: dict[str, str] = {}

    def place(self, question: str) -> int:
        """The number of the fact that has this question."""
        return self._places[question_key(question)]

    def memory(self, questions: Sequence[str], report: CountReport) -> list[Answer]:
        """The memory's answers; a reply that was not taught has at most 32 tokens."""
        answers: list[Answer] = []
        for begin in range(0, len(questions), _AT_ONCE):
            answers += self.answerer.replies(questions[begin : begin + _AT_ONCE], LONGEST)
            report(len(answers), len(questions))
        for answer in answers:
            if not answer.taught:
                self._untouched[answer.question] = answer.text
        return answers

    def untouched(self, questions: Sequence[str]) -> list[str]:
        """The untouched model's replies, of at most 32 tokens."""
        needed = [text for text in dict.fromkeys(questions) if text not in self._untouched]
        for begin in range(0, len(needed), _AT_ONCE):
            group = needed[begin : begin + _AT_ONCE]
            readings, _ = self.engine.read(group)
            texts = self.engine.greedy_answers(readings, LONGEST)
            self._untouched |= dict(zip(group, texts, strict=True))
        return [self._untouched[question] for question in questions]

    def listed(self, questions: Sequence[str]) -> list[Answer]:
        """Answers without weights: the list's if the gate accepts, else the untouched model's."""
        places: list[int | None] = []
        for begin in range(0, len(questions), _AT_ONCE):
            places += self.answerer.listed(questions[begin : begin + _AT_ONCE])
        unlisted = [text for text, place in zip(questions, places, strict=True) if place is None]
        replies = dict(zip(unlisted, self.untouched(unlisted), strict=True))
        return [
            Answer(question, replies[question], "model")
            if place is None
            else Answer(question, self.facts[place].answer, "list", self.facts[place])
            for question, place in zip(questions, places, strict=True)
        ]

    def weights_give(
        self, questions: Sequence[str], owners: Sequence[int], report: CountReport
    ) -> list[bool]:
        """Whether greedy decoding with the weights gives fact ``owners[n]``'s answer and ends."""

        def give(readings: Sequence[Reading], places: Sequence[int]) -> list[bool]:
            answers = [self.facts[owners[place]].answer for place in places]
            return self.engine.answers_given(readings, answers)

        return self._with_weights(questions, owners, give, report)

    def weights(
        self, questions: Sequence[str], owners: Sequence[int], report: CountReport
    ) -> list[str]:
        """The reply to each question n with the weights of fact ``owners[n]``."""
        return self._with_weights(
            questions,
            owners,
            lambda readings, _: self.engine.greedy_answers(readings, LONGEST),
            report,
        )

    def _with_weights(
        self,
        questions: Sequence[str],
        owners: Sequence[int],
        ask: Callable[[Sequence[Reading], Sequence[int]], list[_Result]],
        report: CountReport,
    ) -> list[_Result]:
        """One result of ``ask(readings, places)`` per question, with its fact's weights on."""
        results: dict[int, _Result] = {}
        for places in self._groups(owners):
            with self.acting([questions[place] for place in places], owners[places[0]]) as readings:
                results |= dict(zip(places, ask(readings, places), strict=True))
            report(len(results), len(questions))
        return [results[place] for place in range(len(questions))]

    @contextlib.contextmanager
    def acting(self, questions: Sequence[str], owner: int = 0) -> Iterator[Sequence[Reading]]:
        """Switch the weights of fact ``owner`` on in the block; yield the questions' readings."""
        if self._neurons is not None:
            prompts = [self.engine.limits.question_tokens(question) for question in questions]
            with acting(self.engine.bare_model(), self._neurons), self.engine.reader.own_prefix():
                yield self.engine.reader.read(prompts)
            return
        readings, _ = self.engine.read(questions)
        with self.engine.using(self.answerer.adapter(owner), readings) as read:
            yield read

    def _groups(self, owners: Sequence[int]) -> list[list[int]]:
        """Positions of questions in batches of at most 32, each batch for one adapter."""
        by_adapter: dict[str, list[int]] = {}
        for place, owner in enumerate(owners):
            name = "" if self._neurons is not None else self.answerer.adapter(owner).name
            by_adapter.setdefault(name, []).append(place)
        return [
            places[begin : begin + _AT_ONCE]
            for places in by_adapter.values()
            for begin in range(0, len(places), _AT_ONCE)
        ]
