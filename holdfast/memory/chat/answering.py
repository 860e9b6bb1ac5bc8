"""Answer questions from lessons, from the list of facts, or by the untouched model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from holdfast.memory.chat.batch import GATE
from holdfast.memory.chat.engine import Engine
from holdfast.memory.chat.gate import Gate, Vectors
from holdfast.memory.chat.record import Record, read_lesson
from holdfast.memory.spelling import loose_key, taught_spellings
from holdfast.model.adapter import State
from holdfast.model.reading import Reading
from holdfast.streams import Item, Task
from holdfast.streams.batches import WORDING_OF, is_wording
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


class Answerer:
    """Answers from the lessons of a memory; reads their gate's vectors once."""

    def __init__(
        self, engine: Engine, directory: Path, record: Record, tasks: Sequence[Task]
    ) -> None:
        """tasks: the learned lessons' facts, in order."""
        self._engine, self._directory = engine, directory
        self._facts: list[Item] = []  # the newest of each question
        self._lesson: list[str] = []  # the file of each fact's lesson
        places: dict[str, int] = {}
        self._asked: dict[str, int] = {}  # wordings on file, by key
        for task, lesson in zip(tasks, record.lessons, strict=True):
            for item in task.items:
                key = question_key(item.details[WORDING_OF] if is_wording(item) else item.question)
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
        for lesson in record.lessons:
            tensors, keys = read_lesson(self._directory, lesson.file, only=GATE)
            for row, key in zip(tensors[GATE].float().numpy(), keys, strict=True):
                if self._lesson[places[key]] == lesson.file:
                    rows.append(row)
                    owners.append(places[key])
        return np.stack(rows), owners

    def replies(self, questions: Sequence[str]) -> list[Answer]:
        """The answers, in order; HoldfastError for a question that is empty or too long."""
        found = self.taught(questions)
        texts = iter(
            self._engine.untouched_answers([one for one in found if isinstance(one, Reading)])
        )
        return [
            one if isinstance(one, Answer) else Answer(question, next(texts), "model")
            for question, one in zip(questions, found, strict=True)
        ]

    def taught(self, questions: Sequence[str]) -> list[Answer | Reading]:
        """The answers that were taught; for other questions what the untouched model goes on from.

        Raises HoldfastError for a question that is empty or too long.
        """
        readings, vectors = self._engine.read(questions)
        places = [
            self._fact(question, vector)
            for question, vector in zip(questions, vectors.numpy(), strict=True)
        ]
        given = self._given(readings, places)
        found: list[Answer | Reading] = []
        for number, (question, place) in enumerate(zip(questions, places, strict=True)):
            if place is None:
                found.append(readings[number])
                continue
            fact = self._facts[place]
            source: Source = "weights" if given[number] else "list"
            found.append(Answer(question, fact.answer, source, fact))
        return found

    def _fact(self, question: str, vector: Vectors) -> int | None:
        """The number of the fact that a question asks for, if it was taught."""
        for known, key in ((self._asked, question_key), (self._loose, loose_key)):
            if (place := known.get(key(question))) is not None:
                return place
        match = next(iter(self._gate.matches(question, vector)), None)
        return match.place if match is not None and match.score > 0 else None

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
