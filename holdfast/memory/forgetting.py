"""Take facts out of a memory: off its list, and out of its weights.

Every lesson is learned from the untouched model. So a lesson that is learned again without a fact
never saw it, and nothing has to be unlearned.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

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
    Gone,
    LearnedLesson,
    Record,
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
from holdfast.streams.batches import fact_key, latest
from holdfast.streams.item import question_key, same_answer


@dataclass(frozen=True)
class ForgottenFact:
    """A fact with an answer that goes, and how probable that is after the question.

    The answer is the newest one, or a former one that was corrected. before: by the weights that
    had learned it; after: by those in their place, the greatest where there are several; untouched:
    by the model itself. None where there are no such weights, and all of them before anything is
    forgotten.
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


def what_goes(
    memory: Memory, questions: Iterable[str] = (), *, corrected: bool = False
) -> Forgetting:
    """What :func:`forget` would do; nothing is changed, and no model is needed.

    questions: as they were taught; where no other fact has the same, in any case and punctuation.
    Raises HoldfastError for a question that is not on the list of facts, and for questions beside
    ``corrected``.
    """
    questions = tuple(questions)
    if corrected and questions:
        raise HoldfastError("--corrected is for all that was corrected; leave out the questions")
    facts = _corrected(memory) if corrected else _named(memory, questions)
    gone = _gone(facts, corrected=corrected)
    affected = _affected(memory, gone)
    others = {fact_key(item) for _, task in affected for item in task.items if not gone.has(item)}
    keys = {question_key(fact.question) for fact in facts}
    loose = {loose_key(fact.question) for fact in facts}
    twins = (
        item.question
        for item in memory.facts
        if loose_key(item.question) in loose and question_key(item.question) not in keys
    )
    names = tuple(task.name for _, task in affected)
    return Forgetting(facts, names, len(others), twins=tuple(twins))


def forget(
    memory: Memory,
    questions: Sequence[str] = (),
    report: Told = lambda *_: None,
    *,
    corrected: bool = False,
) -> Forgetting:
    """Forget facts: their questions, with all their answers and wordings.

    corrected: instead of that, the former answers of all facts that were corrected, where there are
    any; the newest of each stays. The lessons that had what goes, and all that share weights with
    these, are learned again without it, and neurons of all facts are removed; so is what an
    interrupted consolidation left. Killed, it has forgotten either nothing or all, and the same
    call ends it. report(what, done, total).
    Raises HoldfastError for a question that is not on the list of facts, or that somebody teaches
    again meanwhile, while another process learns here, and when the disk is full; nothing is
    forgotten then.
    """
    memory.refresh()
    directory, unfinished = memory.directory, memory.record.gone
    done = set() if corrected else set(map(loose_key, unfinished.keys))
    questions = [question for question in questions if loose_key(question) not in done]
    what_goes(memory, questions, corrected=corrected)  # raises before anything is waited for
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
        for file in {before.lessons[number - 1].file for number, _ in affected}:
            read_lesson(directory, file)  # raises where it is damaged, before anything is learned
        learned = {
            number: _learn(memory, number, remaining, report)
            for number, task in affected
            for remaining in without([task], gone)
        }
        facts = tuple(
            _measured(memory, fact, _had(affected, _gone([fact], corrected=corrected)), learned)
            for fact in forgetting.facts
        )
        after = _after(memory, gone, learned, {number for number, _ in affected})
        items = (item for task in memory.tasks for item in task.items)
        forget_proposals(list(filter(gone.has, items)))
        with list_of(directory):
            tasks = listed_tasks(directory, before)
            _check_not_taught_again(memory, tasks, gone)
            check_list(directory, without(tasks, gone), after)
            for lesson, batch in learned.values():
                batch.write(directory, lesson.file, memory.engine().tuning.key)
            with contextlib.suppress(OSError):  # which has seen them, and must not stay at a kill
                (directory / PROGRESS_OF_ALL).unlink(missing_ok=True)
            write_record(directory, after)  # from here on they are forgotten
            finish_forgetting(directory)
        remove_unnamed(directory, after)
        memory.refresh()
    missed = sum(len(batch.missed) for _, batch in learned.values())
    return replace(forgetting, facts=facts, answered=forgetting.others - missed)


def _named(memory: Memory, questions: Iterable[str]) -> tuple[ForgottenFact, ...]:
    """The facts of questions. Raises HoldfastError for one that is not on the list."""
    facts: dict[str, ForgottenFact] = {}
    for question in questions:
        item = _on_file(memory, question)
        if item is None:
            near = "".join(f"; taught is {_quote(other)}" for other in memory.nearest(question, 1))
            raise HoldfastError(
                f"{memory.directory}: {_quote(question)} is not on its list of facts{near}"
            )
        facts[question_key(item.question)] = ForgottenFact(item.question, item.answer)
    return tuple(facts.values())


def _corrected(memory: Memory) -> tuple[ForgottenFact, ...]:
    """The facts that were corrected, with each former answer that is on file yet."""
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
    """A whole question in quotes, in its own script, to be copied."""
    return json.dumps(question, ensure_ascii=False)


def _on_file(memory: Memory, question: str) -> Item | None:
    for key in (question_key, loose_key):
        matches = [item for item in memory.facts if key(item.question) == key(question)]
        if len(matches) == 1:
            return matches[0]
    return None


def _affected(memory: Memory, gone: Gone) -> list[tuple[int, Task]]:
    """The learned lessons whose weights have seen what is forgotten, by their numbers from 1.

    An adapter of all facts was taught those too whose lesson kept its own; where it is the only
    one, the newest answers alone.
    """
    # Of two memories in one it is not known; all lessons may have been taught then.
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
    return [
        (number, task)
        for number, (lesson, task) in enumerate(lessons, start=1)
        if lesson.file in seen
    ]


def _had(lessons: Iterable[tuple[int, Task]], gone: Gone) -> list[int]:
    """The numbers of the lessons that had it."""
    return [number for number, task in lessons if any(map(gone.has, task.items))]


def _after(
    memory: Memory,
    gone: Gone,
    learned: dict[int, tuple[LearnedLesson, LearnedBatch]],
    affected: Collection[int],
) -> Record:
    """What is to be committed. learned: the lessons that were learned again, by number; affected:
    these, and those of which nothing is left.
    """
    before = memory.record
    lessons = {
        number: learned[number][0]
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
    """Raise HoldfastError where a batch that the memory has not read yet has what is forgotten."""
    read = {(task.name, task.fingerprint) for task in memory.tasks}
    for task in tasks:
        if (task.name, task.fingerprint) not in read and (
            taught := sorted(map(fact_key, filter(gone.has, task.items)))
        ):
            raise HoldfastError(
                f"{memory.directory}: {_quote(taught[0])} was taught again meanwhile, so nothing "
                "is forgotten; forget it once more if that has to go too"
            )


def _learn(
    memory: Memory, number: int, task: Task, report: Told
) -> tuple[LearnedLesson, LearnedBatch]:
    seed = derive(memory.seed, "lesson", number)
    batch = learn_batch(memory.engine(report), task, seed, report)
    return learned_lesson(number, task, batch.missed), batch


@torch.no_grad()
def _measured(
    memory: Memory,
    fact: ForgottenFact,
    numbers: Sequence[int],
    learned: dict[int, tuple[LearnedLesson, LearnedBatch]],
) -> ForgottenFact:
    """The fact with its probabilities, where lessons had learned it. numbers: of these."""
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
