"""Lessons on file that are not learned yet, of a memory of either kind, and dropping them."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from holdfast.core.errors import HoldfastError
from holdfast.core.files import alone
from holdfast.memory.chat.listing import list_of
from holdfast.memory.chat.record import is_chat_memory
from holdfast.memory.chat.states import (
    LessonProgress,
    LessonState,
    lesson_states,
    questions_of,
)
from holdfast.results.commit import completed_in
from holdfast.streams.batches import FACTS_FILE, read_batches, write_batches


def waiting_lessons(directory: Path) -> list[LessonState]:
    """The lessons on file that are not learned, in order; empty where there is no memory.

    It needs no model. Raises HoldfastError when the memory is damaged.
    """
    if is_chat_memory(directory):
        return [state for state in lesson_states(directory) if state.state != "learned"]
    tasks = read_batches(directory / FACTS_FILE)
    return [
        LessonState(number, task.name, "waiting", len(questions_of(task)))
        for number, task in enumerate(tasks, start=1)
        if number > completed_in(directory)
    ]


def cancel_lessons(directory: Path, numbers: Collection[int] | None = None) -> list[LessonState]:
    """Take lessons that are not learned off the list, all by default; they are returned.

    The later ones move up. A process that learns one of them on a chat model leaves it within a
    step. Raises HoldfastError for a number that is not on file or learned, and where another
    process learns in a memory on the embedded model; nothing is changed then.
    """
    chat = is_chat_memory(directory)
    if not chat and not (directory / FACTS_FILE).exists():
        raise HoldfastError(f"{directory}: no such memory; give the directory of one")
    with list_of(directory) if chat else alone(directory):
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
            write_batches(directory / FACTS_FILE, kept)
        if chat and any(one.state == "failed" for one in gone):
            LessonProgress(directory).done()  # else the next one would have failed
    return gone
