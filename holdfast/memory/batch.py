"""Learn one batch of facts as a lesson; write and read the lesson's file.

Beside its adapter, the file has what the gate compares of its questions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from holdfast.core.errors import HoldfastError
from holdfast.core.files import make_folder
from holdfast.core.reporting import WorkReport
from holdfast.memory.engine import Engine
from holdfast.memory.gate import QuestionLook
from holdfast.memory.lesson import Taught, learn_lesson
from holdfast.memory.record import LESSONS, LearnedLesson
from holdfast.memory.wordings import lesson_wordings
from holdfast.model.adapter import State
from holdfast.model.tensors import read_tensors, write_tensors
from holdfast.streams import Item, Task
from holdfast.streams.batches import fact_key, fact_question, is_wording

GATE = "gate"  # the name of the vectors among the tensors of a lesson's file


def lesson_title(name: str) -> str:
    """A lesson's name for a reader: ``lesson monday``; a name that begins with "lesson" stays."""
    return name if name.casefold().startswith("lesson") else f"lesson {name}"


@dataclass(frozen=True)
class Looks:
    """What the gate compares of questions on file. owners: the key of each question's fact."""

    owners: tuple[str, ...]
    looks: tuple[QuestionLook, ...]

    def write(self, directory: Path, file: str, adapter: State, tuning: str) -> None:
        """Write a lesson's file: these in float16 beside the adapter's factors.

        tuning: the key of the gate's tuning that made them.
        """
        vectors = torch.from_numpy(np.stack([look.vector for look in self.looks]))
        names = [
            {word: round(weight, 3) for word, weight in look.names.items()} for look in self.looks
        ]
        note = {"tuning": tuning, "owners": list(self.owners), "names": names}
        write_lesson(directory, file, {**adapter, GATE: vectors.to(torch.float16)}, note)


@dataclass(frozen=True)
class LearnedBatch:
    """A learned lesson before it is written. adapter: its factors; looks: of wordings on file."""

    lesson: LearnedLesson
    adapter: State
    looks: Looks

    def write(self, directory: Path, tuning: str) -> None:
        """Write the lesson's file. tuning: the key of the gate's tuning."""
        self.looks.write(directory, self.lesson.file, self.adapter, tuning)


def learn_batch(
    engine: Engine, number: int, task: Task, seed: int, report: WorkReport
) -> LearnedBatch:
    """Learn the facts of a task, each under its wordings.

    number: of the lesson, from 1; report(lesson, learned, facts): called after every step.
    """
    facts = facts_of(task.items, engine.limits.fits)
    readings, looks = engine.read([text for fact in facts for text in fact.wordings])
    remaining = iter(readings)
    taught = [
        Taught(
            tuple(engine.form.answer(fact.answer)), tuple(next(remaining) for _ in fact.wordings)
        )
        for fact in facts
    ]
    on_file = [place < fact.on_file for fact in facts for place in range(len(fact.wordings))]
    engine.attach_shape()
    state, answered = learn_lesson(
        engine.reader, taught, engine.settings, seed, partial(report, lesson_title(task.name))
    )
    owners = [fact.key for fact in facts for _ in range(fact.on_file)]
    missed = tuple(fact.key for fact, right in zip(facts, answered, strict=True) if not right)
    file = f"{number:05d}-{task.fingerprint[:8]}.safetensors"
    lesson = LearnedLesson(task.name, task.fingerprint, file, missed)
    return LearnedBatch(lesson, state, Looks(tuple(owners), tuple(compress(looks, on_file))))


def taught_wordings(task: Task) -> list[str]:
    """Every wording of a task's facts, those by rule and those too long to be learned included."""
    return [text for fact in facts_of(task.items, lambda _: True) for text in fact.wordings]


@dataclass(frozen=True)
class WordedFact:
    """A fact with the wordings under which it is learned.

    key: of its question, by ``question_key``; wordings: the question first; on_file: how many of
    them, from the first, are in the list of facts.
    """

    key: str
    answer: str
    wordings: list[str]
    on_file: int


def facts_of(items: Iterable[Item], fits: Callable[[str], bool]) -> list[WordedFact]:
    """Group items by fact, and add wordings by rule. fits: whether a wording is short enough."""
    asked: dict[str, list[str]] = {}
    answers: dict[str, str] = {}
    for item in items:
        key = fact_key(item)
        # A fact's question comes first, even if the lesson has only other wordings of it.
        texts = asked.setdefault(key, [fact_question(item)])
        if is_wording(item):
            texts.append(item.question)
            answers.setdefault(key, item.answer)
        else:
            answers[key] = item.answer
    return [
        WordedFact(
            key,
            answers[key],
            [texts[0], *filter(fits, lesson_wordings(texts[0], texts[1:]))],
            len(texts),
        )
        for key, texts in asked.items()
    ]


def read_looks(directory: Path, file: str, tuning: str) -> Looks | None:
    """Read a lesson's looks; None if another tuning made them. Raises HoldfastError if damaged."""
    tensors, note = read_lesson(directory, file, only=GATE)
    if not isinstance(note, dict) or note.get("tuning") != tuning:
        return None
    vectors = tensors[GATE].float().numpy()
    owners, names = note.get("owners", []), note.get("names", [])
    if not len(vectors) == len(owners) == len(names):
        raise damaged_lesson(directory, file, "it is of other facts")
    looks = [
        QuestionLook(names_of, vector) for names_of, vector in zip(names, vectors, strict=True)
    ]
    return Looks(tuple(owners), tuple(looks))


def questions_on_file(items: Iterable[Item]) -> list[tuple[str, str]]:
    """Pairs of a fact's key and a wording on file, once each, the fact's question first."""
    questions = (
        (fact_key(item), text) for item in items for text in (fact_question(item), item.question)
    )
    return list(dict.fromkeys(questions))


def write_lesson(directory: Path, file: str, tensors: State, note: object) -> None:
    """Write a lesson's tensors and a JSON note beside them, atomically."""
    write_tensors(make_folder(directory / LESSONS) / file, tensors, note)


def read_lesson(directory: Path, file: str, only: str | None = None) -> tuple[State, Any]:
    """Read a lesson's tensors, or only the one named ``only``, and its note."""
    try:
        return read_tensors(directory / LESSONS / file, only)
    except ValueError as error:
        raise damaged_lesson(directory, file, error) from error


def damaged_lesson(directory: Path, file: str, reason: object) -> HoldfastError:
    """The error for a lesson's file that is missing or not what was written."""
    return HoldfastError(
        f"{directory / LESSONS / file}: is missing or damaged ({reason}); restore it, or teach the "
        "facts of facts.jsonl to a new memory"
    )
