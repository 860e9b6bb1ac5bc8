"""Decide which given facts a memory has to learn, and what its user is told of the call."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from holdfast.memory.wordings import left_out, wording
from holdfast.memory.words import loose_key
from holdfast.streams import Item, QuestionRegistry, Stream, Task
from holdfast.streams.batches import fact_key, fact_question, is_wording, latest
from holdfast.streams.item import question_key, quoted, same_answer
from holdfast.streams.stream import case_twins

_MOST = 100  # new facts whose questions are asked; reading one takes some milliseconds


@dataclass(frozen=True)
class Correction:
    """A new answer that replaces an earlier one."""

    before: Item
    after: Item


@dataclass(frozen=True)
class Plan:
    """The batches that a memory will have.

    tasks: all batches, those on file first; on_file: how many these are; repeated: given facts that
    are left out because they are learned already; corrected: given facts with a new answer;
    notices: sentences on probable mistakes.
    """

    tasks: tuple[Task, ...]
    on_file: int
    repeated: tuple[Item, ...]
    corrected: tuple[Correction, ...]
    notices: tuple[str, ...]


def plan(
    batches: Sequence[Task], learned: int, facts: Stream | None, again: Collection[Item] = ()
) -> Plan:
    """Add the tasks of ``facts`` to the batches on file.

    batches: those on file; learned: how many of them are learned, from the first; again: learned
    facts to learn once more, all of them if ``facts`` is None, else those that it contains; not
    one whose correction waits.

    Any other fact that the memory already has is left out. A new answer to a question corrects the
    old one; the question's other wordings are learned with it, as are those of a fact that is
    learned once more. A new answer to a wording corrects its fact, unless ``facts`` has that fact's
    question too. A wording that is a question or wording of another fact is left out. Empty batches
    are dropped. Raises HoldfastError if a batch repeats a question.
    """
    tasks = list(batches)
    answers = latest(tasks)
    settled = latest(tasks[:learned])
    repeated: list[Item] = []
    corrected: list[Correction] = []
    notices: list[str] = []
    given = _given(facts, [item for item in again if answers.get(fact_key(item)) == item])
    asked = {fact_key(item): item for task in given for item in task.items if not is_wording(item)}
    for position, task in enumerate(given, start=1):
        fresh: dict[str, Item] = {}
        for item in _checked(task):
            item = _of_its_fact(item, answers, asked)
            key = question_key(item.question)
            before = answers.get(key)
            apart = before is not None and _comes_apart(item, before, asked)
            if before is not None and same_answer(before, item) and not apart:
                if settled.get(key) is not before:
                    continue  # on file but not learned yet, so it is learned now
                if before not in again:
                    repeated.append(item)
                    continue
            elif before is not None and not is_wording(item) and not is_wording(before):
                corrected.append(Correction(before, item))
            elif before is not None and is_wording(item) and not _is_of_one_fact(item, before):
                notices.append(left_out(item.question, fact_question(before), fact_question(item)))
                continue
            if before is not None and not is_wording(item):
                fresh |= _reworded(item, answers.values())
            fresh[key] = item
            answers |= fresh
        notices += twin_notices(answers.values(), fresh.values())
        if fresh:
            tasks.append(Task(_name(task, position, tasks), tuple(fresh.values())))
    repeated_facts = tuple(item for item in repeated if not is_wording(item))
    return Plan(tuple(tasks), len(batches), repeated_facts, tuple(corrected), tuple(notices))


def _given(facts: Stream | None, again: Collection[Item]) -> tuple[Task, ...]:
    if facts is not None:
        return facts.tasks
    return (Task("again", tuple(again)),) if again else ()


def _of_its_fact(item: Item, answers: Mapping[str, Item], asked: Collection[str]) -> Item:
    """The item, moved to the fact's own question if it gives a new answer to a wording of it.

    answers: on file, by key; asked: the keys of all given facts. If the fact is among them, the
    item stays, so that the wording becomes a fact.
    """
    before = answers.get(fact_key(item))
    if before is None or not is_wording(before):
        return item
    question = fact_question(before)
    is_new = is_wording(item) or not same_answer(before, item)
    if not is_new or question_key(question) in asked:
        return item
    fact = replace(item, question=question)
    return wording(fact, item.question) if is_wording(item) else fact


def _comes_apart(item: Item, before: Item, asked: Mapping[str, Item]) -> bool:
    """Whether the wording ``before`` becomes the fact ``item``, as its fact gets another answer."""
    fact = asked.get(fact_key(before))
    is_given = is_wording(before) and not is_wording(item)
    return is_given and fact is not None and not same_answer(fact, item)


def _reworded(fact: Item, items: Iterable[Item]) -> dict[str, Item]:
    """The other wordings of a fact among ``items``, with its answer, by key."""
    return {
        question_key(item.question): wording(fact, item.question)
        for item in items
        if is_wording(item) and fact_key(item) == fact_key(fact)
    }


def _is_of_one_fact(item: Item, other: Item) -> bool:
    """Whether ``other`` is a wording too, of the same question as the wording ``item``."""
    return is_wording(other) and fact_key(other) == fact_key(item)


def twin_notices(facts: Iterable[Item], fresh: Iterable[Item]) -> list[str]:
    """Notices on pairs of questions, one of them fresh, that differ only in case or punctuation."""
    fresh = list(fresh)
    return [
        f"{quoted(before.question)} and {quoted(item.question)} differ in case or punctuation "
        "alone and are two facts; to correct one, write it alike"
        for before, item in case_twins(facts, lambda text: loose_key(text) or question_key(text))
        if item in fresh or before in fresh
    ]


def contradictions(
    taken_for: Callable[[Sequence[str]], Sequence[Item | None]], decided: Plan
) -> tuple[str, ...]:
    """Notices on new facts whose questions the memory answers already, with another answer.

    taken_for: returns the fact on file that the memory takes each question for, or None. Both facts
    are kept, each for its own wording, since the memory may misunderstand the question. Only the
    first hundred new facts are checked.
    """
    on_file = latest(decided.tasks[: decided.on_file])
    items = (item for task in decided.tasks[decided.on_file :] for item in task.items)
    new = [item for item in items if not is_wording(item) and fact_key(item) not in on_file]
    new = new[:_MOST]
    if not new or not on_file:
        return ()
    return tuple(
        f"{quoted(fact.question)} may ask the same as {quoted(other.question)}, which stays "
        f"on file with the answer {quoted(other.answer)}; if so, forget that one"
        for fact, other in zip(new, taken_for([fact.question for fact in new]), strict=True)
        if other is not None
        and not same_answer(other, fact)
        and fact.answer.casefold() != other.answer.casefold()
        and loose_key(fact.question) != loose_key(other.question)  # the plan has a notice on those
    )


def _checked(task: Task) -> tuple[Item, ...]:
    """A batch's items. Raises HoldfastError if it repeats a question."""
    questions = QuestionRegistry()
    for number, item in enumerate(task.items, start=1):
        questions.add(item, f"batch {task.name} item {number}")
    return task.items


def _name(task: Task, position: int, tasks: Sequence[Task]) -> str:
    """The batch's name, made unique; an unnamed batch gets its number in the memory."""
    # Readers number the tasks of a file that does not name them.
    name = str(len(tasks) + 1) if task.name == str(position) else task.name
    return free_name(name, tasks)


def free_name(name: str, tasks: Iterable[Task]) -> str:
    """The name, with a number appended if one of the tasks has it."""
    taken = {other.name for other in tasks}
    free, count = name, 1
    while free in taken:
        count += 1
        free = f"{name} ({count})"
    return free


@dataclass(frozen=True)
class LessonOutcome:
    """The outcome of one call of ``Memory.learn``.

    lessons: names of the learned ones; facts: theirs; missed: those whose answers the weights do
    not give; repeated: given facts that were learned before; corrected: answers that replace
    earlier ones; known: the number of facts on file; notices: on probable mistakes.
    """

    lessons: tuple[str, ...]
    facts: tuple[Item, ...]
    missed: tuple[Item, ...]
    repeated: tuple[Item, ...]
    corrected: tuple[Correction, ...]
    known: int
    notices: tuple[str, ...] = ()


def outcome_of(
    lessons: Sequence[Task], facts: Sequence[Item], missed: Sequence[Item], decided: Plan
) -> LessonOutcome:
    """lessons: those that the call learned; facts, missed: all of the memory's."""
    keys = {fact_key(item) for task in lessons for item in task.items}
    learned = tuple(item for item in facts if question_key(item.question) in keys)
    all_missed = set(missed)
    return LessonOutcome(
        tuple(task.name for task in lessons),
        learned,
        tuple(item for item in learned if item in all_missed),
        decided.repeated,
        decided.corrected,
        len(facts),
        decided.notices,
    )


@dataclass(frozen=True)
class Filed:
    """What one call of ``Memory.write_facts`` put on file.

    lessons: the numbers of those that will teach the given facts, none if all are learned already;
    the rest as in :class:`LessonOutcome`.
    """

    lessons: tuple[int, ...]
    repeated: tuple[Item, ...]
    corrected: tuple[Correction, ...]
    notices: tuple[str, ...] = ()
