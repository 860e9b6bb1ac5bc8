"""What a call of a memory did."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.memory.plan import Correction
from holdfast.streams import Item


@dataclass(frozen=True)
class LessonOutcome:
    """What one call of ``ChatMemory.learn`` did.

    lessons: names of those learned; facts: theirs; missed: those of them whose answers the weights
    do not give; repeated: given facts that were known before; corrected: answers that replace
    earlier ones; known: the number of facts on file.
    """

    lessons: tuple[str, ...]
    facts: tuple[Item, ...]
    missed: tuple[Item, ...]
    repeated: tuple[Item, ...]
    corrected: tuple[Correction, ...]
    known: int


@dataclass(frozen=True)
class Filed:
    """What one call of ``ChatMemory.write_facts`` put on file.

    lessons: the numbers of those that will teach the given facts; none where all are learned
    already; repeated, corrected: as in :class:`LessonOutcome`.
    """

    lessons: tuple[int, ...]
    repeated: tuple[Item, ...]
    corrected: tuple[Correction, ...]
