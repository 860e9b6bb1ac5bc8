"""Merge two memories of the same model into one: the lessons of one, then those of the other.

Every lesson was learned from the untouched model, and the gate decides whose adapter answers. So
the lessons of two memories are copied as they are. If they answer one question differently, the
later lesson corrects the earlier one, as in any memory.
"""

from __future__ import annotations

import filecmp
import logging
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from holdfast.core.errors import HoldfastError
from holdfast.core.files import atomic_directory, check_place, lock_directory, make_folder
from holdfast.memory.batch import read_lesson
from holdfast.memory.memory import Memory
from holdfast.memory.plan import free_name, twin_notices
from holdfast.memory.record import LESSONS, Gone, LearnedLesson, Record, without, write_record
from holdfast.streams import Item, Task
from holdfast.streams.batches import FACTS_FILE, fact_key, is_wording, latest, write_batches
from holdfast.streams.item import question_key, quoted, same_answer

logger = logging.getLogger(__name__)
Keep = Literal["first", "second"]


@dataclass(frozen=True)
class Merged:
    """What a merged memory has.

    shared: the number of facts that both had with the same answer; settled: questions to which they
    had different answers.
    """

    facts: int
    lessons: int
    shared: int
    settled: tuple[str, ...]


def merge(first: Memory, second: Memory, out: Path, keep: Keep | None = None) -> Merged:
    """Write the merged memory into ``out``, a new or empty directory; neither memory is changed.

    keep: whose answer counts if they answer one question differently. Facts that wait to be learned
    wait there too. Neurons of all facts are left out. No model is loaded.
    Raises HoldfastError if ``out`` is within one of the memories, if their models differ, if one
    has learned nothing, if their answers differ without ``keep``, if a lesson is damaged, and if
    another process learns in one of them.
    """
    check_place(out)
    if first.directory.resolve() == second.directory.resolve():
        raise HoldfastError(f"{second.directory}: is both memories; give another one")
    for memory in (first, second):
        if out.resolve().is_relative_to(memory.directory.resolve()):
            raise HoldfastError(f"{out}: is within {memory.directory}; choose a place outside it")
    with lock_directory(first.directory), lock_directory(second.directory):
        for memory in (first, second):
            memory.refresh()
        _check(first, second)
        ours, theirs = (
            {fact_key(item): item for item in memory.facts} for memory in (first, second)
        )
        both = ours.keys() & theirs.keys()
        settled = [key for key in ours if key in both and not same_answer(ours[key], theirs[key])]
        if settled and keep is None:
            raise HoldfastError(
                f"{second.directory}: has another answer than {first.directory} to "
                f"{len(settled)} of its questions, {quoted(ours[settled[0]].question)} for one; "
                "give --keep first or --keep second"
            )
        order = (second, first) if keep == "first" else (first, second)  # the later one corrects
        with atomic_directory(out) as folder:
            tasks, lessons = _united(folder, *order, set(settled))
            write_batches(folder / FACTS_FILE, tasks)
            record = Record(first.model, first.record.fingerprint, first.seed, tuple(lessons))
            write_record(folder, record)
    added = [item for key, item in theirs.items() if key not in both]
    for notice in twin_notices([*ours.values(), *added], added):
        logger.warning(notice)
    questions = tuple(ours[key].question for key in settled)
    shared = len(both) - len(settled)
    return Merged(len(ours.keys() | theirs.keys()), len(lessons), shared, questions)


def _check(first: Memory, second: Memory) -> None:
    for memory in (first, second):
        if not memory.horizon:
            raise HoldfastError(f"{memory.directory}: has learned nothing yet; learn its facts")
    if first.record.fingerprint != second.record.fingerprint:
        raise HoldfastError(
            f"{second.directory}: was taught to another model ({second.model}) than "
            f"{first.directory} ({first.model}); teach its facts.jsonl to that memory"
        )


def _united(
    folder: Path, earlier: Memory, later: Memory, settled: Collection[str]
) -> tuple[list[Task], list[LearnedLesson]]:
    """Copy the lessons' files into ``folder``; return the batches, learned ones first, and lessons.

    settled: keys of the facts for which the later memory's answer counts. A lesson of both is
    copied once.
    """
    learned: list[Task] = []
    waiting: list[Task] = []
    lessons: list[LearnedLesson] = []
    make_folder(folder / LESSONS)
    for memory, other in ((earlier, later), (later, earlier)):
        asked = latest(other.tasks)
        files: dict[str, str] = {}  # the new name of each lesson's file
        corrected = Gone(frozenset(settled if memory is earlier else ()))
        still_waiting = without(memory.tasks[memory.horizon :], corrected)
        waiting += filter(None, (_unambiguous(task, asked) for task in still_waiting))
        for task, lesson in zip(memory.tasks, memory.record.lessons, strict=False):
            source = memory.directory / LESSONS / lesson.file
            batch = _unambiguous(task, asked)
            if batch is None or _is_there(batch, source, learned, lessons, folder):
                continue
            batch = replace(batch, name=free_name(batch.name, learned))
            learned.append(batch)
            if lesson.file not in files:
                files[lesson.file] = f"{len(learned):05d}-{lesson.file.rpartition('-')[2]}"
                read_lesson(memory.directory, lesson.file)  # raises where it is damaged
                shutil.copyfile(source, folder / LESSONS / files[lesson.file])
            entry = replace(lesson, name=batch.name, fingerprint=batch.fingerprint)
            lessons.append(replace(entry, file=files[lesson.file]))
    for task in waiting:
        learned.append(replace(task, name=free_name(task.name, learned)))
    return learned, lessons


def _unambiguous(task: Task, asked: Mapping[str, Item]) -> Task | None:
    """A batch without wordings that are questions or wordings of another fact in ``asked``."""

    def is_clear(item: Item) -> bool:
        other = asked.get(question_key(item.question))
        return not is_wording(item) or other is None or fact_key(other) == fact_key(item)

    items = tuple(filter(is_clear, task.items))
    return replace(task, items=items) if items else None


def _is_there(
    task: Task,
    source: Path,
    learned: Sequence[Task],
    lessons: Sequence[LearnedLesson],
    folder: Path,
) -> bool:
    """Whether ``learned`` has a lesson with these facts and this file, and nothing corrects it."""
    newest = latest(learned)
    return all(
        (other := newest.get(question_key(item.question))) is not None and same_answer(other, item)
        for item in task.items
    ) and any(
        lesson.fingerprint == task.fingerprint
        and filecmp.cmp(folder / LESSONS / lesson.file, source, shallow=False)
        for lesson in lessons
    )
