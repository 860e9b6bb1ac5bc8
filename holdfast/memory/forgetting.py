"""Remove facts from a memory's list and from its weights.

Every lesson is learned from the untouched model. So the weights of a lesson that is learned again
without a fact have never seen it, and nothing has to be unlearned.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from holdfast.core.errors import HoldfastError
from holdfast.core.files import lock_directory
from holdfast.core.reporting import WorkReport, silent
from holdfast.core.seeding import derive
from holdfast.memory.batch import LearnedBatch, learn_batch, read_lesson
from holdfast.memory.documents import forget_proposals
from holdfast.memory.engine import Adapter
from holdfast.memory.memory import Memory
from holdfast.memory.record import (
    CONSOLIDATION_LOCK,
    PARTS,
    PROGRESS_OF_ALL,
    Gone,
    Record,
    check_list,
    finish_forgetting,
    list_of,
    listed_tasks,
    remove_half_written,
    remove_unnamed,
    without,
    write_record,
)
from holdfast.memory.words import loose_key
from holdfast.model.adapter import State
from holdfast.streams import Item, Task
from holdfast.streams.batches import FACTS_FILE, fact_key, latest
from holdfast.streams.item import question_key, same_answer


@dataclass(frozen=True)
class ForgottenFact:
    """A forgotten answer to a question, and its probability given the question.

    answer: the newest one, or a former one; before: its probability by the last weights that had
    learned it; after: the greatest by the weights that replace them; untouched: by the untouched
    model. None where there are no such weights, and before anything is forgotten.
    """

    question: str
    answer: str
    before: float | None = None
    after: float | None = None
    untouched: float | None = None


@dataclass(frozen=True)
class Forgetting:
    """What was forgotten, or would be.

    lessons: names of those that are learned again without the facts, or removed if nothing else is
    in them; others: how many other facts they have; answered: how many of these the new weights
    answer, None before they exist; twins: questions of facts that stay and differ from a forgotten
    one only in case or punctuation, so that they may answer it.
    """

    facts: tuple[ForgottenFact, ...]
    lessons: tuple[str, ...]
    others: int
    answered: int | None = None
    twins: tuple[str, ...] = ()


def what_goes(
    memory: Memory, questions: Iterable[str] = (), *, corrected: bool = False
) -> Forgetting:
    """What :func:`forget` would do. Changes nothing and needs no model.

    questions: as they were taught; case and punctuation may differ if only one fact then matches.
    Raises HoldfastError for a question that is not on the list, and for any with ``corrected``.
    """
    questions = tuple(questions)
    if corrected and questions:
        raise HoldfastError("--corrected is for all that was corrected; leave out the questions")
    facts = _corrected(memory) if corrected else _named(memory, questions)
    gone = _gone(facts, corrected=corrected)
    affected = _affected(memory, gone)
    items = (item for task in affected.values() for item in task.items)
    others = {fact_key(item) for item in items if not gone.has(item)}
    keys = {question_key(fact.question) for fact in facts}
    loose = {loose_key(fact.question) for fact in facts}
    twins = (
        item.question
        for item in memory.facts
        if loose_key(item.question) in loose and question_key(item.question) not in keys
    )
    names = tuple(task.name for task in affected.values())
    return Forgetting(facts, names, len(others), twins=tuple(twins))


def forget(
    memory: Memory,
    questions: Sequence[str] = (),
    report: WorkReport = silent,
    *,
    corrected: bool = False,
) -> Forgetting:
    """Forget facts: their questions, with all their answers and wordings.

    corrected: forget instead the former answers of all corrected facts, and keep the newest.
    Lessons that learned what is forgotten, and all that share weights with them, are learned again
    without it. Neurons of all facts, and the progress of an interrupted consolidation, are removed.
    If the process is killed, nothing or everything is forgotten; the same call finishes it.
    report(what, done, total). Raises HoldfastError for a question that is not on the list or is
    taught again meanwhile, if another process learns here, and if the disk is full; nothing is
    forgotten then.
    """
    memory.refresh()
    directory, unfinished = memory.directory, memory.record.gone
    questions = [text for text in questions if corrected or not _is_forgotten(memory, text)]
    what_goes(memory, questions, corrected=corrected)  # raises before the wait for the locks
    with (
        lock_directory(directory, lock=CONSOLIDATION_LOCK, parts=PARTS),
        lock_directory(directory, parts=PARTS),
    ):
        with list_of(directory):
            finish_forgetting(directory)
            remove_half_written(directory)
        memory.refresh()
        remove_unnamed(directory, memory.record)
        forgetting = what_goes(memory, questions, corrected=corrected)
        gone = _gone(forgetting.facts, corrected=corrected)
        if gone == unfinished == Gone():
            return forgetting
        before = memory.record
        affected = _affected(memory, gone)
        for file in {before.lessons[number - 1].file for number in affected}:
            read_lesson(directory, file)  # raises where it is damaged, before anything is learned
        learned: dict[int, LearnedBatch] = {}
        for number, task in affected.items():
            seed = derive(memory.seed, "lesson", number)
            for remaining in without([task], gone):
                learned[number] = learn_batch(
                    memory.engine(report), number, remaining, seed, report
                )
        facts = tuple(
            _measured(memory, fact, _gone([fact], corrected=corrected), affected, learned)
            for fact in forgetting.facts
        )
        after = _after(memory, gone, learned, affected)
        items = (item for task in memory.tasks for item in task.items)
        forget_proposals(list(filter(gone.has, items)))
        with list_of(directory):
            tasks = listed_tasks(directory, before)
            _check_not_taught_again(memory, tasks, gone)
            check_list(directory, without(tasks, gone), after)
            for batch in learned.values():
                batch.write(directory, memory.engine().tuning.key)
            with contextlib.suppress(OSError):  # the progress has seen the facts
                (directory / PROGRESS_OF_ALL).unlink(missing_ok=True)
            write_record(directory, after)  # from here on the facts are forgotten
            finish_forgetting(directory)
        remove_unnamed(directory, after)
        memory.refresh()
    answered: dict[str, bool] = {}  # by the last lesson that has the fact
    for batch in learned.values():
        answered |= dict.fromkeys(batch.looks.owners, True)
        answered |= dict.fromkeys(batch.lesson.missed, False)
    return replace(forgetting, facts=facts, answered=sum(answered.values()))


def _is_forgotten(memory: Memory, question: str) -> bool:
    """Whether a killed call has forgotten this question, and the list may still have it."""
    keys = memory.record.gone.keys
    is_like_one = loose_key(question) in set(map(loose_key, keys))
    return question_key(question) in keys or (is_like_one and _on_file(memory, question) is None)


def _named(memory: Memory, questions: Iterable[str]) -> tuple[ForgottenFact, ...]:
    """Raises HoldfastError for a question that is not on the list."""
    facts: dict[str, ForgottenFact] = {}
    for question in questions:
        item = _on_file(memory, question)
        if item is None:
            near = "".join(f"; taught is {_quote(other)}" for other in memory.nearest(question, 1))
            raise HoldfastError(
                f"{memory.directory}: {_quote(question)} is not on its list of facts"
                f"{near or f'; {FACTS_FILE} has them all'}"
            )
        facts[question_key(item.question)] = ForgottenFact(item.question, item.answer)
    return tuple(facts.values())


def _corrected(memory: Memory) -> tuple[ForgottenFact, ...]:
    """The corrected facts, one for each former answer that is still on file."""
    newest = {question_key(fact.question): fact for fact in memory.facts}
    former = {
        (key, item.answer): ForgottenFact(fact.question, item.answer)
        for task in memory.tasks
        for item in task.items
        if (fact := newest.get(key := fact_key(item))) and not same_answer(item, fact)
    }
    return tuple(former.values())


def _gone(facts: Iterable[ForgottenFact], *, corrected: bool) -> Gone:
    pairs = frozenset((question_key(fact.question), fact.answer) for fact in facts)
    return Gone(former=pairs) if corrected else Gone(frozenset(key for key, _ in pairs))


def _quote(question: str) -> str:
    """A whole question in its own script, so that it can be copied."""
    return json.dumps(question, ensure_ascii=False)


def _on_file(memory: Memory, question: str) -> Item | None:
    for key in (question_key, loose_key):
        matches = [item for item in memory.facts if key(item.question) == key(question)]
        if len(matches) == 1:
            return matches[0]
    return None


def _affected(memory: Memory, gone: Gone) -> dict[int, Task]:
    """The learned lessons whose weights have seen what is forgotten, by number from 1.

    A consolidated adapter has seen the facts of all consolidated lessons, also of those that kept
    their own adapter; if it answers for all of them, it has seen only the newest answers.
    """
    # A merged memory does not record how many were consolidated; it may have been all.
    count = memory.record.consolidated or len(memory.record.lessons)
    lessons = list(zip(memory.record.lessons, memory.tasks, strict=False))
    items = [item for _, task in lessons[:count] for item in task.items]
    if len({lesson.file for lesson, _ in lessons[:count]}) == 1:
        items = list(latest(task for _, task in lessons[:count]).values())
    all_have = any(map(gone.has, items))
    seen = {
        lesson.file
        for number, (lesson, task) in enumerate(lessons, start=1)
        if (all_have if lesson.whole_turn and number <= count else any(map(gone.has, task.items)))
    }
    return {
        number: task
        for number, (lesson, task) in enumerate(lessons, start=1)
        if lesson.file in seen
    }


def _after(
    memory: Memory, gone: Gone, learned: Mapping[int, LearnedBatch], affected: Collection[int]
) -> Record:
    """The record to commit. affected: the numbers of the learned lessons and of those that go."""
    before = memory.record
    lessons = {
        number: learned[number].lesson
        if number in learned
        else replace(lesson, fingerprint=remaining.fingerprint)
        for number, (lesson, task) in enumerate(
            zip(before.lessons, memory.tasks, strict=False), start=1
        )
        for remaining in without([task], gone)
    }
    after = tuple(lessons.values())
    count = before.consolidated
    is_undone = any(number <= count for number in affected)
    return replace(
        before,
        lessons=after,
        neurons=before.neurons if after == before.lessons else None,
        consolidated=0 if is_undone else sum(number <= count for number in lessons),
        forgotten=tuple(sorted(gone.keys)),
        former=tuple(sorted(gone.former)),
    )


def _check_not_taught_again(memory: Memory, tasks: Iterable[Task], gone: Gone) -> None:
    """Raise HoldfastError if a batch that was added meanwhile has what is forgotten."""
    read = {(task.name, task.fingerprint) for task in memory.tasks}
    added = [task for task in tasks if (task.name, task.fingerprint) not in read]
    again = [fact_key(item) for task in added for item in task.items if gone.has(item)]
    if again:
        raise HoldfastError(
            f"{memory.directory}: {_quote(min(again))} was taught again meanwhile, so nothing is "
            "forgotten; forget it once more if that has to go too"
        )


@torch.no_grad()
def _measured(
    memory: Memory,
    fact: ForgottenFact,
    gone: Gone,
    affected: Mapping[int, Task],
    learned: Mapping[int, LearnedBatch],
) -> ForgottenFact:
    """The fact with its probabilities. gone: this fact alone."""
    numbers = [number for number, task in affected.items() if any(map(gone.has, task.items))]
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

    last = memory.record.lessons[numbers[-1] - 1]
    before = probability(last.file, read_lesson(memory.directory, last.file)[0], last.whole_turn)
    new = [learned[number] for number in numbers if number in learned]
    after = [probability(f"new-{batch.lesson.file}", batch.adapter) for batch in new]
    return replace(
        fact, before=before, after=max(after, default=None), untouched=probability("", {})
    )
