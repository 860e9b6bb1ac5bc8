"""Decide which given facts a memory has to learn: new ones and corrections."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from holdfast.streams import Item, QuestionRegistry, Stream, Task


@dataclass(frozen=True)
class Correction:
    """An answer that takes the place of an earlier one."""

    before: Item
    after: Item


@dataclass(frozen=True)
class Plan:
    """The batches that a memory will have.

    tasks: all of them, those on file first; on_file: how many those are; repeated: facts that were
    given but are learned already, so they are left out; corrected: questions that were given with
    another answer than the memory has.
    """

    tasks: tuple[Task, ...]
    on_file: int
    repeated: tuple[Item, ...]
    corrected: tuple[Correction, ...]


def plan(
    known: Sequence[Task], learned: int, facts: Stream | None, again: Collection[Item] = ()
) -> Plan:
    """Add the tasks of ``facts`` to the batches on file.

    known: those on file; learned: how many of them, the first, are learned; again: facts that are
    learned once more where ``facts`` has them.

    A question with the answer that the memory has is left out otherwise; with another one it is
    learned as a fact of the new batch, and is the answer from then on. An empty batch is dropped.
    Raises HoldfastError for two answers to one question in one batch.
    """
    tasks = list(known)
    answers = {_key(item): item for item in newest(tasks)}
    settled = {_key(item): item for item in newest(tasks[:learned])}
    repeated: list[Item] = []
    corrected: list[Correction] = []
    for position, task in enumerate(facts.tasks if facts else (), start=1):
        fresh = []
        for item in _checked(task):
            key = _key(item)
            before = answers.get(key)
            if before is not None and _coded(before.answer) == _coded(item.answer):
                if settled.get(key) is not before:
                    continue  # on file but not learned yet, so it is learned now
                if before not in again:
                    repeated.append(item)
                    continue
            elif before is not None:
                corrected.append(Correction(before, item))
            answers[key] = item
            fresh.append(item)
        if fresh:
            tasks.append(Task(_name(task, position, tasks), tuple(fresh)))
    return Plan(tuple(tasks), len(known), tuple(repeated), tuple(corrected))


def newest(tasks: Iterable[Task]) -> list[Item]:
    """Every question once, in the order in which they came, with its latest answer."""
    return list({_key(item): item for task in tasks for item in task.items}.values())


def _checked(task: Task) -> tuple[Item, ...]:
    """A batch's items; within one, a published stream too may ask a question only once."""
    questions = QuestionRegistry()
    for number, item in enumerate(task.items, start=1):
        questions.add(item, f"batch {task.name} item {number}")
    return task.items


def _name(task: Task, position: int, tasks: Sequence[Task]) -> str:
    """The batch's own name, made unique; one without a name is called by its number here."""
    # Readers number the tasks of a file that does not name them.
    name = str(len(tasks) + 1) if task.name == str(position) else task.name
    taken = {other.name for other in tasks}
    free, count = name, 1
    while free in taken:
        count += 1
        free = f"{name} ({count})"
    return free


def _key(item: Item) -> str:
    return _coded(item.question)


def _coded(text: str) -> str:
    """A text in the Unicode normal form in which questions are compared."""
    return unicodedata.normalize("NFC", text)
