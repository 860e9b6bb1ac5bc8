"""Learn one batch of facts as a lesson, and write the lesson's file."""

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
from holdfast.streams.batches import fact_key, fact_question, is_wording


def lesson_title(name: str) -> str:
    """A lesson's name for a reader: ``lesson monday``; a name that begins with "lesson" stays."""
    return name if name.casefold().startswith("lesson") else f"lesson {name}"


@dataclass(frozen=True)
class LearnedBatch:
    """A learned lesson before it is written.

    tensors: the adapter's factors; looks: what the gate compares of every wording on file; missed:
    the keys of the questions whose answers the adapter does not give.
    """

    tensors: State
    looks: Looks
    missed: tuple[str, ...]

    def write(self, directory: Path, file: str, tuning: str) -> None:
        """Write the lesson's file. tuning: the key of the gate's tuning."""
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
    """Every wording of a task's facts, those by rule and those too long to be learned included."""
    return [text for fact in facts_of(task.items, lambda _: True) for text in fact.wordings]


@dataclass(frozen=True)
class WordedFact:
    """A fact with the wordings under which it is learned.

    key: of its question, by ``question_key``; wordings: the question, then its other wordings;
    on_file: how many of them, from the first, are in the list of facts.
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
