"""Take facts out of a memory: off its list, and out of its weights.

Every lesson is learned from the untouched model. So a lesson that is learned again without a fact
never saw it, and nothing has to be unlearned.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch

from holdfast.core.errors import HoldfastError
from holdfast.core.files import lock_directory
from holdfast.core.seeding import derive
from holdfast.memory.batch import LearnedBatch, learn_batch
from holdfast.memory.documents import forget_proposals
from holdfast.memory.engine import Adapter
from holdfast.memory.listing import PARTS, check_list, list_of
from holdfast.memory.memory import Memory, Told
from holdfast.memory.record import (
    CONSOLIDATION_LOCK,
    PROGRESS_OF_ALL,
    LearnedLesson,
    finish_forgetting,
    learned_lesson,
    listed_tasks,
    read_lesson,
    remove_half_written,
    remove_unnamed,
    without,
    write_record,
)
from holdfast.memory.spelling import loose_key
from holdfast.model.adapter import State
from holdfast.streams import Item, Task
from holdfast.streams.batches import fact_key, lesson_title
from holdfast.streams.item import question_key


@dataclass(frozen=True)
class ForgottenFact:
    """A fact with its newest answer, and how probable that is behind the question.

    before: by the weights that had learned it; after: by those in their place, the greatest where
    there are several; untouched: by the model itself, which answers the question from now on. None
    where there are no such weights, and all of them before anything is forgotten.
    """

    question: str
    answer: str
    before: float | None = None
    after: float | None = None
    untouched: float | None = None


@dataclass(frozen=True)
class Forgetting:
    """What was forgotten, or would be.

    lessons: names of those that are learned again without the facts; others: how many facts these
    have; answered: of them, by the new weights, None before; twins: questions of facts that stay
    and differ from a forgotten one in case or punctuation alone, so that they may answer it.
    """

    facts: tuple[ForgottenFact, ...]
    lessons: tuple[str, ...]
    others: int
    answered: int | None = None
    twins: tuple[str, ...] = ()


def what_goes(memory: Memory, questions: Iterable[str]) -> Forgetting:
    """What :func:`forget` would do; nothing is changed, and no model is needed.

    questions: as they were taught; where no other fact has the same, in any case and punctuation.
    Raises HoldfastError for a question that is not on the list of facts.
    """
    facts: dict[str, ForgottenFact] = {}
    for question in questions:
        item = _on_file(memory, question)
        if item is None:
            near = "".join(f"; taught is {_quote(other)}" for other in memory.nearest(question, 1))
            raise HoldfastError(
                f"{memory.directory}: {_quote(question)} is not on its list of facts{near}"
            )
        facts[question_key(item.question)] = ForgottenFact(item.question, item.answer)
    affected = _affected(memory, facts)
    others = {fact_key(item) for _, task in affected for item in task.items} - set(facts)
    gone = {loose_key(fact.question) for fact in facts.values()}
    twins = (
        item.question
        for item in memory.facts
        if loose_key(item.question) in gone and question_key(item.question) not in facts
    )
    names = tuple(task.name for _, task in affected)
    return Forgetting(tuple(facts.values()), names, len(others), twins=tuple(twins))


def forget(memory: Memory, questions: Sequence[str], report: Told = lambda *_: None) -> Forgetting:
    """Forget facts: their questions, with all their answers and wordings.

    The lessons that had them, and all that share weights with these, are learned again without
    them, and neurons of all facts are removed; so is what an interrupted consolidation left.
    Killed, it has forgotten either nothing or all, and the same call ends it. report(what, done,
    total).
    Raises HoldfastError for a question that is not on the list of facts, or that somebody teaches
    again meanwhile, while another process learns here, and when the disk is full; nothing is
    forgotten then.
    """
    directory, done = memory.directory, set(map(loose_key, memory.record.forgotten))
    questions = [question for question in questions if loose_key(question) not in done]
    what_goes(memory, questions)  # raises before anything is waited for
    with (
        lock_directory(directory, lock=CONSOLIDATION_LOCK, parts=PARTS),
        lock_directory(directory, parts=PARTS),
    ):
        with list_of(directory):
            finish_forgetting(directory)
            remove_half_written(directory)
        memory.refresh()
        remove_unnamed(directory, memory.record)
        forgetting = what_goes(memory, questions)
        keys = {question_key(fact.question) for fact in forgetting.facts}
        before = memory.record
        affected = _affected(memory, keys)
        for file in {before.lessons[number - 1].file for number, _ in affected}:
            read_lesson(directory, file)  # raises where it is damaged, before anything is learned
        learned = {
            number: _learn(memory, number, remaining, report)
            for number, task in affected
            for remaining in without([task], keys)
        }
        facts = tuple(_measured(memory, fact, affected, learned) for fact in forgetting.facts)
        affected_numbers = [number for number, _ in affected]
        lessons = [
            learned[number][0] if number in learned else lesson
            for number, lesson in enumerate(before.lessons, start=1)
            if number in learned or number not in affected_numbers
        ]
        after = replace(
            before,
            lessons=tuple(lessons),
            neurons=None if affected else before.neurons,
            consolidated=0 if affected else before.consolidated,
            forgotten=tuple(sorted(keys)),
        )
        items = (item for task in memory.tasks for item in task.items)
        forget_proposals([item for item in items if fact_key(item) in keys])
        with list_of(directory):
            tasks = listed_tasks(directory, before)
            _check_not_taught_again(memory, tasks, keys)
            check_list(directory, without(tasks, keys), after)
            for lesson, batch in learned.values():
                batch.write(directory, lesson.file, memory.engine().tuning.key)
            write_record(directory, after)  # from here on they are forgotten
            finish_forgetting(directory)
        remove_unnamed(directory, after)
        with contextlib.suppress(OSError):
            (directory / PROGRESS_OF_ALL).unlink(missing_ok=True)
        memory.refresh()
    missed = sum(len(batch.missed) for _, batch in learned.values())
    return replace(forgetting, facts=facts, answered=forgetting.others - missed)


def _quote(question: str) -> str:
    """A whole question in quotes, in its own script, to be copied."""
    return json.dumps(question, ensure_ascii=False)


def _on_file(memory: Memory, question: str) -> Item | None:
    for key in (question_key, loose_key):
        matches = [item for item in memory.facts if key(item.question) == key(question)]
        if len(matches) == 1:
            return matches[0]
    return None


def _affected(memory: Memory, keys: Iterable[str]) -> list[tuple[int, Task]]:
    """The learned lessons whose weights have seen the facts, by their numbers from 1."""
    lessons = list(zip(memory.record.lessons, memory.tasks, strict=False))
    asked = set(keys)
    seen = {lesson.file for lesson, task in lessons if not asked.isdisjoint(_keys(task))}
    return [
        (number, task)
        for number, (lesson, task) in enumerate(lessons, start=1)
        if lesson.file in seen
    ]


def _check_not_taught_again(memory: Memory, tasks: Iterable[Task], keys: Iterable[str]) -> None:
    """Raise HoldfastError where a batch that the memory has not read yet has one of the facts."""
    read = {(task.name, task.fingerprint) for task in memory.tasks}
    for task in tasks:
        if (task.name, task.fingerprint) not in read and (taught := _keys(task).intersection(keys)):
            raise HoldfastError(
                f"{memory.directory}: {_quote(min(taught))} was taught again meanwhile, so nothing "
                "is forgotten; forget it once more if that has to go too"
            )


def _keys(task: Task) -> set[str]:
    return {fact_key(item) for item in task.items}


def _learn(
    memory: Memory, number: int, task: Task, report: Told
) -> tuple[LearnedLesson, LearnedBatch]:
    seed = derive(memory.seed, "lesson", number)
    batch = learn_batch(memory.engine(report), task, seed, partial(report, lesson_title(task.name)))
    return learned_lesson(number, task, batch.missed), batch


@torch.no_grad()
def _measured(
    memory: Memory,
    fact: ForgottenFact,
    affected: Sequence[tuple[int, Task]],
    learned: dict[int, tuple[LearnedLesson, LearnedBatch]],
) -> ForgottenFact:
    """The fact with its probabilities, where lessons had learned it."""
    key = question_key(fact.question)
    numbers = [number for number, task in affected if key in _keys(task)]
    if not numbers:
        return fact
    engine = memory.engine()
    tokens = engine.form.answer(fact.answer)
    readings, _ = engine.read([fact.question])

    def probability(file: str, tensors: State, whole_turn: bool = False) -> float:
        factors = {name: tensor.float() for name, tensor in tensors.items() if ".lora_" in name}
        adapter = Adapter(file, lambda: factors, whole_turn)
        acting = engine.using(adapter, readings) if factors else contextlib.nullcontext(readings)
        with acting as read:
            loss = engine.reader.answer_logits(read, [tokens]).losses()
        return math.exp(-float(loss[0]) * len(tokens))

    lesson = memory.record.lessons[numbers[-1] - 1]
    new = [learned[number] for number in numbers if number in learned]
    return replace(
        fact,
        before=probability(
            lesson.file, read_lesson(memory.directory, lesson.file)[0], lesson.whole_turn
        ),
        after=max(
            (probability(f"new-{lesson.file}", batch.tensors) for lesson, batch in new),
            default=None,
        ),
        untouched=probability("", {}),
    )
