"""List and cancel the lessons on file that are not learned yet."""

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
    """The lessons on file that are not learned, in order; empty if there is no memory.

    Needs no model. Raises HoldfastError if the memory is damaged.
    """
    return [state for state in lesson_states(directory) if state.state != "learned"]


def cancel_lessons(directory: Path, numbers: Collection[int] | None = None) -> list[LessonState]:
    """Take lessons that are not learned off the list, all by default; return them.

    Later lessons move up and lose other wordings of cancelled facts. A process that learns a
    cancelled lesson drops it within a step. Raises HoldfastError if a number is not on file or is
    learned already; nothing is changed then.
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
        cancelled = [state for state in waiting if numbers is None or state.number in numbers]
        gone = {state.number for state in cancelled}
        remaining = [task for number, task in enumerate(tasks, start=1) if number not in gone]
        if cancelled:
            batches = [*remaining[:count], *_with_facts(remaining, count)]
            write_batches(directory / FACTS_FILE, batches)
        if any(state.state == "failed" for state in cancelled):
            LessonProgress(directory).done()  # else the next lesson would count as failed
    return cancelled


def _with_facts(tasks: Sequence[Task], learned: int) -> Iterator[Task]:
    """The batches that are not learned, without wordings whose fact is missing."""
    facts = latest(tasks[:learned])
    for task in tasks[learned:]:
        facts |= latest([task])
        items = tuple(item for item in task.items if not is_wording(item) or has_fact(item, facts))
        if items:
            yield Task(task.name, items)
