"""Answer questions from lessons, from the list of facts, or by the untouched model."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Literal

from holdfast.memory.batch import (
    GATE,
    Looks,
    damaged_lesson,
    questions_on_file,
    read_lesson,
    read_looks,
)
from holdfast.memory.engine import Adapter, Engine
from holdfast.memory.gate import Gate, Match, QuestionLook, WaitingQuestions
from holdfast.memory.record import Record
from holdfast.memory.words import loose_key, name_in, taught_spellings, words
from holdfast.model.adapter import State
from holdfast.model.reading import Reading
from holdfast.streams import Item, Task
from holdfast.streams.batches import fact_key, is_wording
from holdfast.streams.item import is_visible, question_key

Source = Literal["weights", "list", "model"]
# Added to the gate's score if an adapter gives, or does not give, the taught answer to a question:
# log(.83 / .27) and log(.17 / .73). On the development set of facts, adapters give it to 83% of the
# other wordings of taught questions, and to 27% of the questions for an entity's other relations.
_GIVEN, _NOT_GIVEN = 1.1, -1.5
# A message is divided at the ends of sentences, and at "and" or a comma before a question word.
_ENDS = re.compile(r"(?<=[.?!…])\s+|(?<=[。？！])|\n+")
_ASKS = (
    r"(?=(?:also\s+)?(?:(?:at|by|for|from|in|of|on|to|with)\s+)?"
    r"(?:what|which|who|whom|whose|where|when|why|how)\b)"
)
_AND = re.compile(rf"[,;]?\s+and\s+{_ASKS}", re.IGNORECASE)
_COMMA = re.compile(rf"[,;]\s+{_ASKS}", re.IGNORECASE)
_PRONOUN = re.compile(
    r"\b(?:(?P<owner>his|its|their|her(?=\s+\w))|he|she|it|they|him|them|her)\b", re.IGNORECASE
)
_LEAST = 3  # words of a part that may be a question


@dataclass(frozen=True)
class Answer:
    """A memory's answer to a question.

    source: ``weights`` if an adapter gives the taught answer, ``list`` if only the list of facts
    does, ``model`` if the question was not taught and the untouched model answers; fact: the taught
    one; waiting: whether its lesson is not learned yet; further: other facts that the same message
    asks for, each answered in a line of ``text``.
    """

    question: str
    text: str
    source: Source
    fact: Item | None = None
    waiting: bool = False
    further: tuple[Item, ...] = ()

    @property
    def taught(self) -> bool:
        """Whether the answer was taught."""
        return self.source != "model"


def _is_taught(score: float, given: bool | None) -> bool:
    """score: the gate's; given: whether the weights give the answer, None if it is not learned."""
    return score + (0.0 if given is None else _GIVEN if given else _NOT_GIVEN) > 0


class Answerer:
    """Answers from a memory's lessons, or from its list if they do not give the answer."""

    def __init__(
        self, engine: Engine, directory: Path, record: Record, tasks: Sequence[Task]
    ) -> None:
        """tasks: the batches of the learned lessons in order, then those that wait."""
        self._engine, self._directory = engine, directory
        self.facts: list[Item] = []  # by number, each with its newest answer
        self._lesson: list[str | None] = []  # the file of each fact's lesson, None while it waits
        self._whole_turn = {lesson.file for lesson in record.lessons if lesson.whole_turn}
        self._numbers: dict[str, int] = {}
        self._asked: dict[str, int] = {}  # the fact of every taught question and wording
        count = len(record.lessons)
        for task, lesson in zip(tasks[:count], record.lessons, strict=True):
            for item in task.items:
                self._add(item, lesson.file)
        looks, owners = self._looks(record, tasks)
        self._gate = Gate(engine.tuning, looks, owners)
        self._waiting = WaitingQuestions(
            (self._add(item, None), item.question)
            for task in tasks[count:]
            for item in task.items
            if engine.limits.fits(item.question)  # else its lesson fails and says why
        )
        self._loose = {
            key: self._asked[question] for key, question in taught_spellings(self._asked).items()
        }

    def _add(self, item: Item, file: str | None) -> int:
        """Add a fact, or another wording of one; return the fact's number.

        file: of its lesson; None if it waits, and then a learned fact with this answer keeps its
        lesson.
        """
        place = self._numbers.setdefault(fact_key(item), len(self.facts))
        if place == len(self.facts):
            self.facts.append(item)
            self._lesson.append(file)
        before = self.facts[place]
        if not is_wording(item):
            self.facts[place] = item
        if file is not None or self.facts[place].answer != before.answer:
            self._lesson[place] = file
        self._asked[question_key(item.question)] = place
        return place

    def _looks(self, record: Record, tasks: Sequence[Task]) -> tuple[list[QuestionLook], list[int]]:
        """What the gate compares of the learned questions, and the number of each one's fact."""
        looks, owners = [], []
        for file in dict.fromkeys(lesson.file for lesson in record.lessons):
            stored = read_looks(self._directory, file, self._engine.tuning.key)
            if stored is None:  # of another tuning: the model reads the questions again
                batches = [
                    task.items
                    for task, lesson in zip(tasks, record.lessons, strict=False)
                    if lesson.file == file
                ]
                keys, texts = zip(*questions_on_file(chain.from_iterable(batches)), strict=True)
                stored = Looks(keys, tuple(self._engine.looks(texts)))
            if not self._numbers.keys() >= set(stored.owners):
                raise damaged_lesson(self._directory, file, "it is of other facts")
            for key, look in zip(stored.owners, stored.looks, strict=True):
                if self._lesson[self._numbers[key]] == file:
                    looks.append(look)
                    owners.append(self._numbers[key])
        return looks, owners

    @property
    def adapter_names(self) -> tuple[str, ...]:
        """The names of the adapters that answer at least one fact."""
        return tuple(dict.fromkeys(file for file in self._lesson if file is not None))

    def adapter(self, place: int) -> Adapter:
        """The adapter that answers a learned fact."""
        file = self._lesson[place]
        assert file is not None, "the fact waits"
        return self._adapter(file)

    def _adapter(self, file: str) -> Adapter:
        def factors() -> State:
            tensors, _ = read_lesson(self._directory, file)
            return {name: tensor for name, tensor in tensors.items() if name != GATE}

        return Adapter(file, factors, file in self._whole_turn)

    def listed(self, questions: Sequence[str]) -> list[int | None]:
        """The number of the fact that each question asks for, None for none: by the gate alone."""
        _, looks = self._engine.read(questions)
        matches = self._matches(questions, looks)
        return [match.place if match and match.score > 0 else None for match in matches]

    def replies(self, questions: Sequence[str], longest: int | None = None) -> list[Answer]:
        """The answers, in order. Raises HoldfastError for a question that is empty or too long.

        longest: most tokens of an answer of the untouched model; None for the engine's limit.
        """
        taught = self.taught(questions)
        unknown = [reading for reading in taught if isinstance(reading, Reading)]
        texts = iter(self._engine.greedy_answers(unknown, longest))
        return [
            answer if isinstance(answer, Answer) else Answer(question, next(texts), "model")
            for question, answer in zip(questions, taught, strict=True)
        ]

    def taught(self, questions: Sequence[str]) -> list[Answer | Reading]:
        """The taught answer to each question, or its reading by the untouched model if it has none.

        If a message asks for several facts, the answer has a line for each. If a message as a whole
        is about no fact, its parts may be. Raises HoldfastError for a question that is empty or too
        long.
        """
        taught = self._taught(questions)
        several = {
            number: parts
            for number, question in enumerate(questions)
            if self._place_on_file(question) is None and (parts := questions_in(question))
        }
        for number, answers in zip(several, self._parts(list(several.values())), strict=True):
            least = 2 if isinstance(taught[number], Answer) else 1
            if len({answer.fact for answer in answers}) >= least:
                taught[number] = joined(questions[number], answers)
        return taught

    def _parts(self, messages: Sequence[Sequence[str]]) -> list[list[Answer]]:
        """The taught answers to the parts of each message.

        A part without one is asked again with the name of the last taught part for its pronoun.
        """
        taught = iter(self._taught([question for parts in messages for question in parts]))
        answers: list[list[Answer]] = []
        for parts in messages:
            answers.append([])
            name = None
            for question in parts:
                answer = next(taught)
                if isinstance(answer, Reading) and name and (full := asked_of(question, name)):
                    answer = self._taught([full])[0]
                elif isinstance(answer, Answer):
                    name = name_in(question, self._engine.looks([question])[0].names)
                if isinstance(answer, Answer):
                    answers[-1].append(answer)
        return answers

    def _taught(self, questions: Sequence[str]) -> list[Answer | Reading]:
        """As :meth:`taught`, with each question as a whole."""
        if not questions:
            return []
        readings, looks = self._engine.read(questions)
        matches = self._matches(questions, looks)
        given = self._given(readings, matches)
        taught: list[Answer | Reading] = []
        for number, (question, match) in enumerate(zip(questions, matches, strict=True)):
            if match is None or not _is_taught(match.score, given.get(number)):
                taught.append(readings[number])
                continue
            fact = self.facts[match.place]
            source: Source = "weights" if given.get(number) else "list"
            waiting = self._lesson[match.place] is None
            taught.append(Answer(question, fact.answer, source, fact, waiting))
        return taught

    def _matches(
        self, questions: Sequence[str], looks: Sequence[QuestionLook]
    ) -> list[Match | None]:
        """The fact that each question may ask for; an infinite score for a question on file."""
        waiting = self._waiting.about(questions)
        waiting_looks = self._engine.looks([text for _, text in waiting])
        for (owner, _), look in zip(waiting, waiting_looks, strict=True):
            self._gate.add(look, owner)
        matches: list[Match | None] = []
        for question, look in zip(questions, looks, strict=True):
            place = self._place_on_file(question)
            best = self._gate.best(look) if place is None else Match(place, math.inf)
            # A match that even a right answer of the adapter cannot save is dropped.
            matches.append(best if best and _is_taught(best.score, given=True) else None)
        return matches

    def _place_on_file(self, question: str) -> int | None:
        """The number of the fact with this question or wording, case and punctuation aside."""
        place = self._asked.get(question_key(question))
        return self._loose.get(loose_key(question)) if place is None else place

    def _given(
        self, readings: Sequence[Reading], matches: Sequence[Match | None]
    ) -> dict[int, bool]:
        """By question number, whether the weights give the answer; only for learned facts."""
        by_file: dict[str, list[tuple[int, int]]] = {}
        for number, match in enumerate(matches):
            if match is not None and (lesson := self._lesson[match.place]) is not None:
                by_file.setdefault(lesson, []).append((number, match.place))
        given: dict[int, bool] = {}
        for file, pairs in by_file.items():
            asked = [readings[number] for number, _ in pairs]
            with self._engine.using(self._adapter(file), asked) as read:
                answers = [self.facts[place].answer for _, place in pairs]
                verdicts = self._engine.answers_given(read, answers)
            given |= {number: right for (number, _), right in zip(pairs, verdicts, strict=True)}
        return given


def questions_in(message: str) -> list[str]:
    """The parts of a message that may be questions; none if it has only one part.

    A part is a sentence, or a question that ``and`` and commas join to others in one sentence:
    *Where does Ada live, who is her doctor and what does she drink?*
    """
    sentences = [part.strip() for part in _ENDS.split(message) if part.strip()]
    parts = []
    for sentence in sentences:
        *before, last = _AND.split(sentence)
        parts += [*(part for joined in before for part in _COMMA.split(joined)), last]
    if len(parts) < 2:
        return []
    may_ask = (part for part in parts if len(words(part)) >= _LEAST or not part.isascii())
    return list(filter(is_visible, may_ask))


def asked_of(question: str, name: str) -> str | None:
    """A question with a name in place of its first pronoun; None if it has no pronoun."""
    pronoun = _PRONOUN.search(question)
    if pronoun is None:
        return None
    ending = "'s" if pronoun["owner"] else ""
    return f"{question[: pronoun.start()]}{name}{ending}{question[pronoun.end() :]}"


def joined(message: str, answers: Sequence[Answer]) -> Answer:
    """One answer for the parts of a message, with a line for each distinct fact."""
    distinct = list({answer.fact: answer for answer in answers}.values())
    first, *others = distinct
    return replace(
        first,
        question=message,
        text="\n".join(answer.text for answer in distinct),
        source="weights" if all(answer.source == "weights" for answer in distinct) else "list",
        waiting=any(answer.waiting for answer in distinct),
        further=tuple(answer.fact for answer in others if answer.fact is not None),
    )
