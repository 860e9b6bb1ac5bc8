"""One batch of facts: read, learned, and made ready to be written."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import compress
from pathlib import Path

from holdfast.memory.engine import Engine
from holdfast.memory.lesson import Taught, learn_lesson
from holdfast.memory.lesson_wordings import lesson_wordings
from holdfast.memory.looks import Looks
from holdfast.memory.record import write_lesson
from holdfast.model.adapter import State
from holdfast.streams import Item, Task
from holdfast.streams.batches import WORDING_OF, fact_key, is_wording


def lesson_title(name: str) -> str:
    """How a lesson is named in a line: ``lesson monday``, and ``lesson 3`` where that is it."""
    return name if name.casefold().startswith("lesson") else f"lesson {name}"


@dataclass(frozen=True)
class LearnedBatch:
    """What a lesson leaves.

    tensors: the adapter's factors; looks: at every wording on file; missed: the keys of the
    questions whose answers the adapter does not give.
    """

    tensors: State
    looks: Looks
    missed: tuple[str, ...]

    def write(self, directory: Path, file: str, tuning: str) -> None:
        """Write a lesson's file. tuning: the key of the gate's."""
        tensors = {**self.tensors, **self.looks.tensors()}
        write_lesson(directory, file, tensors, self.looks.note(tuning))


def learn_batch(
    engine: Engine, task: Task, seed: int, report: Callable[[str, int, int], None]
) -> LearnedBatch:
    """Learn the facts of a task, each under its wordings.

    report(lesson, learned, facts) is called after every step.
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
    return LearnedBatch(
        state,
        Looks(tuple(owners), tuple(compress(looks, on_file))),
        tuple(fact.key for fact, right in zip(facts, answered, strict=True) if not right),
    )


def taught_wordings(task: Task) -> list[str]:
    """Every wording under which a lesson learns the facts of a task, those by rule included."""
    return [text for fact in facts_of(task.items, lambda _: True) for text in fact.wordings]


@dataclass(frozen=True)
class WordedFact:
    """A fact as it is learned.

    key: of its question, as ``question_key`` writes it; wordings: of its question, the first
    ``on_file`` those that stand in the list of facts.
    """

    key: str
    answer: str
    wordings: list[str]
    on_file: int


def facts_of(items: Iterable[Item], fits: Callable[[str], bool]) -> list[WordedFact]:
    """The facts of items with their wordings that fit; further ones of an earlier fact too."""
    asked: dict[str, list[str]] = {}
    answers: dict[str, str] = {}
    for item in items:
        key = fact_key(item)
        # A fact's question comes first, also where a lesson brings further wordings alone.
        texts = asked.setdefault(key, [item.details.get(WORDING_OF, item.question)])
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
