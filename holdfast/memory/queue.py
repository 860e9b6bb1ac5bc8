"""Lessons on file that are not learned yet, and dropping them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from holdfast.core.errors import HoldfastError
from holdfast.memory.listing import list_of
from holdfast.memory.record import finish_forgetting, require_memory
from holdfast.memory.states import LessonProgress, LessonState, lesson_states
from holdfast.memory.wordings import has_fact
from holdfast.streams import Task
from holdfast.streams.batches import FACTS_FILE, is_wording, latest, read_batches, write_batches


def waiting_lessons(directory: Path) -> list[LessonState]:
    """The lessons on file that are not learned, in order; empty where there is no memory.

    It needs no model. Raises HoldfastError when the memory is damaged.
    """
    return [state for state in lesson_states(directory) if state.state != "learned"]


def cancel_lessons(directory: Path, numbers: Collection[int] | None = None) -> list[LessonState]:
    """Take lessons that are not learned off the list, all by default; they are returned.

    The later ones move up, without other wordings of facts that are cancelled. A process that
    learns one of them leaves it within a step. Raises HoldfastError for a number that is not on
    file or learned; nothing is changed then.
    """
    require_memory(directory)
    with list_of(directory):
        finish_forgetting(directory)
        waiting = waiting_lessons(directory)
        tasks = read_batches(directory / FACTS_FILE)
        count = len(tasks) - len(waiting)
        for number in numbers or ():
            if not 1 <= number <= len(tasks):
                raise HoldfastError(f"there is no lesson {number}; {len(tasks)} are on file")
            if number <= count:
                raise HoldfastError(
                    f"lesson {number} is learned, and only what waits is cancelled; teach another "
                    "answer to correct it"
                )
        gone = [one for one in waiting if numbers is None or one.number in numbers]
        left = {one.number for one in gone}
        kept = [task for number, task in enumerate(tasks, start=1) if number not in left]
        if gone:
            write_batches(directory / FACTS_FILE, [*kept[:count], *_with_facts(kept, count)])
        if any(one.state == "failed" for one in gone):
            LessonProgress(directory).done()  # else the next one would have failed
    return gone


def _with_facts(tasks: Sequence[Task], learned: int) -> Iterator[Task]:
    """The batches behind those that are learned, without wordings whose fact is not there."""
    known = latest(tasks[:learned])
    for task in tasks[learned:]:
        known |= latest([task])
        items = tuple(one for one in task.items if not is_wording(one) or has_fact(one, known))
        if items:
            yield Task(task.name, items)
