"""Make one memory of two that were taught to the same model: their lessons, one after the other.

Every lesson was learned from the untouched model, in an adapter of its own, and the gate decides
which of them answers. So the lessons of two memories stand beside each other as they are.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from holdfast.core.errors import HoldfastError
from holdfast.core.files import atomic_directory, check_place, lock_directory, make_folder
from holdfast.memory.memory import Memory
from holdfast.memory.plan import free_name
from holdfast.memory.record import (
    LESSONS,
    LearnedLesson,
    Record,
    read_lesson,
    write_record,
)
from holdfast.streams import Item, Task
from holdfast.streams.batches import FACTS_FILE, fact_key, is_wording, latest, write_batches
from holdfast.streams.item import quoted
from holdfast.streams.registry import question_key

Kept = Literal["first", "second"]


@dataclass(frozen=True)
class Merged:
    """What a merged memory has.

    facts: how many; lessons: how many are learned; shared: facts that both had, with one answer;
    settled: questions to which they had two answers, of which one was kept.
    """

    facts: int
    lessons: int
    shared: int
    settled: tuple[str, ...]


def merge(first: Memory, second: Memory, out: Path, keep: Kept | None = None) -> Merged:
    """Write the memory of both into ``out``, a new or empty directory; neither is changed.

    keep: whose answer counts where they have two to one question. What waits to be learned waits
    there too. Neurons of all facts are not taken along. No model is loaded.
    Raises HoldfastError for memories of different models, for one that has learned nothing, for two
    answers without ``keep``, for a damaged lesson, and while another process learns in one of them.
    """
    check_place(out)
    _check(first, second)
    with lock_directory(first.directory), lock_directory(second.directory):
        for memory in (first, second):
            memory.refresh()
        ours, theirs = _answers(first), _answers(second)
        both = ours.keys() & theirs.keys()
        settled = [key for key in ours if key in both and not _same(ours[key], theirs[key])]
        if settled and keep is None:
            raise HoldfastError(
                f"{second.directory}: has another answer than {first.directory} to "
                f"{len(settled)} of its questions, {quoted(ours[settled[0]].question)} for one; "
                "give --keep first or --keep second"
            )
        shared = both - set(settled)
        parts = (
            _Part(first, set(settled) if keep == "second" else set(), set(theirs)),
            _Part(second, both if keep == "first" else shared, set(latest(first.tasks))),
        )
        with atomic_directory(out) as folder:
            tasks, lessons = _united(folder, parts)
            write_batches(folder / FACTS_FILE, tasks)
            record = Record(first.model, first.record.fingerprint, first.seed, tuple(lessons))
            write_record(folder, record)
    questions = tuple(ours[key].question for key in settled)
    return Merged(len(ours.keys() | theirs.keys()), len(lessons), len(shared), questions)


def _check(first: Memory, second: Memory) -> None:
    """Raise HoldfastError where two memories cannot become one."""
    places = [memory.directory.resolve() for memory in (first, second)]
    if places[0] == places[1]:
        raise HoldfastError(f"{second.directory}: is both memories; give another one")
    for memory in (first, second):
        if not memory.horizon:
            raise HoldfastError(f"{memory.directory}: has learned nothing yet; learn its facts")
    if first.record.fingerprint != second.record.fingerprint:
        raise HoldfastError(
            f"{second.directory}: was taught to another model ({second.model}) than "
            f"{first.directory} ({first.model}); teach its facts.jsonl to that memory"
        )


def _answers(memory: Memory) -> dict[str, Item]:
    return {fact_key(item): item for item in memory.facts}


def _same(one: Item, other: Item) -> bool:
    return one.answer == other.answer


@dataclass(frozen=True)
class _Part:
    """A memory, the keys of its facts that are left out, and those of questions of the other."""

    memory: Memory
    dropped: Collection[str]
    others: Collection[str]

    def left(self, task: Task) -> Task | None:
        """A batch without what is left out, and without wordings that the other memory asks."""
        items = [
            one
            for one in task.items
            if fact_key(one) not in self.dropped
            and not (is_wording(one) and question_key(one.question) in self.others)
        ]
        return replace(task, items=tuple(items)) if items else None


def _united(folder: Path, parts: Sequence[_Part]) -> tuple[list[Task], list[LearnedLesson]]:
    """The batches of memories, what is learned before what waits, and the lessons' entries.

    Their files are copied into the folder.
    """
    learned: list[Task] = []
    waiting: list[Task] = []
    lessons: list[LearnedLesson] = []
    make_folder(folder / LESSONS)
    for part in parts:
        record, files = part.memory.record, dict[str, str]()
        for number, task in enumerate(part.memory.tasks):
            if (left := part.left(task)) is None:
                continue
            left = replace(left, name=free_name(left.name, [*learned, *waiting]))
            if number >= len(record.lessons):
                waiting.append(left)
                continue
            learned.append(left)
            lesson = record.lessons[number]
            if lesson.file not in files:
                files[lesson.file] = f"{len(learned):05d}-{lesson.file.rpartition('-')[2]}"
                read_lesson(part.memory.directory, lesson.file)  # raises where it is damaged
                shutil.copyfile(
                    part.memory.directory / LESSONS / lesson.file,
                    folder / LESSONS / files[lesson.file],
                )
            lessons.append(
                replace(
                    lesson,
                    name=left.name,
                    fingerprint=left.fingerprint,
                    file=files[lesson.file],
                    missed=tuple(key for key in lesson.missed if key not in part.dropped),
                )
            )
    return [*learned, *waiting], lessons
