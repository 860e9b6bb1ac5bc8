"""Answer questions from lessons, from the list of facts, or by the untouched model."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from holdfast.memory.chat.batch import GATE
from holdfast.memory.chat.engine import Engine
from holdfast.memory.chat.gate import Gate, Match, Vectors
from holdfast.memory.chat.record import Record, damaged_lesson, read_lesson
from holdfast.memory.chat.second_look import UNCERTAIN, is_comparable, second_scores
from holdfast.memory.spelling import loose_key, taught_spellings
from holdfast.model.adapter import State
from holdfast.model.reading import Reading
from holdfast.streams import Item, Task
from holdfast.streams.batches import fact_key, is_wording
from holdfast.streams.registry import question_key

Source = Literal["weights", "list", "model"]


@dataclass(frozen=True)
class Answer:
    """What a memory answers.

    question: as it was asked; text: the answer; source: ``weights`` where an adapter gives what was
    taught, ``list`` where it gives something else and the list of facts answers, ``model`` for the
    untouched model, which answers what was not taught; fact: the taught fact.
    """

    question: str
    text: str
    source: Source
    fact: Item | None = None

    @property
    def taught(self) -> bool:
        """Whether the answer was taught."""
        return self.source != "model"


# What it tells of a question that an adapter does, or does not, give the taught answer to it: the
# logarithms of .83 / .27 and .17 / .73, the rates for other wordings and for other relations of the
# entity on the development set of facts.
_GIVEN, _NOT_GIVEN = 1.1, -1.5


def _is_taught(score: float, given: bool) -> bool:
    """Whether a question is about a taught fact. score: of the gate; given: by the weights."""
    return score + (_GIVEN if given else _NOT_GIVEN) > 0


class Answerer:
    """Answers from the lessons of a memory; reads their gate's vectors once."""

    def __init__(
        self, engine: Engine, directory: Path, record: Record, tasks: Sequence[Task]
    ) -> None:
        """tasks: the learned lessons' facts, in order; none where nothing is learned."""
        self._engine, self._directory = engine, directory
        self._facts: list[Item] = []  # the newest of each question
        self._lesson: list[str] = []  # the file of each fact's lesson
        places: dict[str, int] = {}
        self._asked: dict[str, int] = {}  # wordings on file, by key
        for task, lesson in zip(tasks, record.lessons, strict=True):
            for item in task.items:
                key = fact_key(item)
                if key not in places:
                    places[key] = len(self._facts)
                    self._facts.append(item)
                    self._lesson.append(lesson.file)
                elif not is_wording(item):
                    self._facts[places[key]] = item
                self._lesson[places[key]] = lesson.file
                self._asked[question_key(item.question)] = places[key]
        vectors, owners = self._vectors(record, places)
        names = [fact.question for fact in self._facts]
        self._gate = Gate(engine.tuning, engine.naming, names, vectors, owners)
        self._loose = {
            key: self._asked[question_key(question)]
            for key, question in taught_spellings(self._asked).items()
        }

    def _vectors(self, record: Record, places: dict[str, int]) -> tuple[Vectors, list[int]]:
        """The vectors of every fact's last lesson, and the facts that they belong to."""
        rows, owners = [], []
        for file in dict.fromkeys(lesson.file for lesson in record.lessons):
            tensors, keys = read_lesson(self._directory, file, only=GATE)
            if len(keys) != len(tensors[GATE]) or not places.keys() >= set(keys):
                raise damaged_lesson(self._directory, file, "it is of other facts")
            for row, key in zip(tensors[GATE].float().numpy(), keys, strict=True):
                if self._lesson[places[key]] == file:
                    rows.append(row)
                    owners.append(places[key])
        empty = np.empty((0, self._engine.tuning.width), np.float32)
        return (np.stack(rows) if rows else empty), owners

    @property
    def facts(self) -> tuple[Item, ...]:
        """The facts, in the order of their numbers, each with its newest answer."""
        return tuple(self._facts)

    @property
    def adapters(self) -> tuple[str, ...]:
        """The adapters that answer at least one fact, in the order of their lessons."""
        return tuple(dict.fromkeys(self._lesson))

    def adapter(self, place: int) -> tuple[str, Callable[[], State]]:
        """The adapter that answers a fact: its name, and what reads its factors."""
        file = self._lesson[place]
        return file, partial(self._factors, file)

    def listed(self, questions: Sequence[str]) -> list[int | None]:
        """The number of the fact that the gate alone takes each question for, None for none.

        No adapter has a say, as in a list of facts without weights.
        """
        _, vectors = self._engine.read(questions)
        matches = self._matches(questions, vectors.numpy())
        return [match.place if match and match.score > 0 else None for match in matches]

    def replies(self, questions: Sequence[str], longest: int | None = None) -> list[Answer]:
        """The answers, in order; HoldfastError for a question that is empty or too long.

        longest: tokens of an answer of the untouched model; the engine's limit by default.
        """
        found = self.taught(questions)
        unknown = [one for one in found if isinstance(one, Reading)]
        texts = iter(self._engine.untouched_answers(unknown, longest))
        return [
            one if isinstance(one, Answer) else Answer(question, next(texts), "model")
            for question, one in zip(questions, found, strict=True)
        ]

    def taught(self, questions: Sequence[str]) -> list[Answer | Reading]:
        """The answers that were taught; for other questions what the untouched model goes on from.

        Raises HoldfastError for a question that is empty or too long.
        """
        if not questions:
            return []
        readings, vectors = self._engine.read(questions)
        places, given = self._places(questions, readings, vectors.numpy())
        found: list[Answer | Reading] = []
        for number, (question, place) in enumerate(zip(questions, places, strict=True)):
            if place is None:
                found.append(readings[number])
                continue
            fact = self._facts[place]
            source: Source = "weights" if given[number] else "list"
            found.append(Answer(question, fact.answer, source, fact))
        return found

    def _places(
        self, questions: Sequence[str], readings: Sequence[Reading], vectors: Vectors
    ) -> tuple[list[int | None], dict[int, bool]]:
        """The fact that each question is taken to ask for, and whether the weights give its answer.

        Both by the question's number; a fact is None, and then not in the second, for none.
        """
        matches = self._matches(questions, vectors)
        given = self._given(readings, [match.place if match else None for match in matches])
        places = [
            match.place if match and _is_taught(match.score, given[number]) else None
            for number, match in enumerate(matches)
        ]
        return places, given

    def _matches(self, questions: Sequence[str], vectors: Vectors) -> list[Match | None]:
        """The fact that each question may ask for; its score is infinite for a question on file."""
        matches: list[Match | None] = []
        uncertain: list[tuple[int, Match]] = []
        for number, (question, vector) in enumerate(zip(questions, vectors, strict=True)):
            place = self._known(question)
            best = self._gate.best(question, vector) if place is None else Match(place, math.inf)
            if best is not None and UNCERTAIN[0] < best.score < UNCERTAIN[1]:
                taught = self._facts[best.place].question
                if is_comparable(self._engine.limits, taught, question):
                    uncertain.append((number, best))
            matches.append(best if best is not None and best.score > UNCERTAIN[0] else None)
        pairs = [(self._facts[match.place].question, questions[n]) for n, match in uncertain]
        first = [match.score for _, match in uncertain]
        second = second_scores(self._engine.reader, self._engine.naming, pairs, first)
        for (number, match), score in zip(uncertain, second, strict=True):
            matches[number] = Match(match.place, score)
        return matches

    def _known(self, question: str) -> int | None:
        """The fact whose question, or another wording on file, this is but for case and marks."""
        place = self._asked.get(question_key(question))
        return self._loose.get(loose_key(question)) if place is None else place

    def _given(self, readings: Sequence[Reading], places: Sequence[int | None]) -> dict[int, bool]:
        """Whether the weights give each taught answer, by the question's number."""
        by_file: dict[str, list[tuple[int, int]]] = {}
        for number, place in enumerate(places):
            if place is not None:
                by_file.setdefault(self._lesson[place], []).append((number, place))
        given: dict[int, bool] = {}
        for file, pairs in by_file.items():
            verdicts = self._engine.gives(
                file,
                partial(self._factors, file),
                [readings[number] for number, _ in pairs],
                [self._facts[place].answer for _, place in pairs],
            )
            given |= {number: right for (number, _), right in zip(pairs, verdicts, strict=True)}
        return given

    def _factors(self, file: str) -> State:
        tensors, _ = read_lesson(self._directory, file)
        return {name: tensor for name, tensor in tensors.items() if name != GATE}
