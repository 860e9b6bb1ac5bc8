"""The outcomes of teaching a memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.memory.plan import Correction, Plan
from holdfast.streams import Item, Task
from holdfast.streams.batches import fact_key
from holdfast.streams.item import question_key


@dataclass(frozen=True)
class LessonOutcome:
    """The outcome of one call of ``Memory.learn``.

    lessons: names of the learned ones; facts: theirs; missed: those of them whose answers the
    weights do not give; repeated: given facts that were learned before; corrected: answers that
    replace earlier ones; known: the number of facts on file; notices: on probable mistakes.
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
    """The outcome of a call. lessons: those it learned; facts, missed: all of the memory's."""
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
    repeated, corrected, notices: as in :class:`LessonOutcome`.
    """

    lessons: tuple[int, ...]
    repeated: tuple[Item, ...]
    corrected: tuple[Correction, ...]
    notices: tuple[str, ...] = ()
