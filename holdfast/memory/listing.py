"""The list of facts in a memory's directory, which has a lock of its own.

A process that learns holds the directory's lock all the time, but the list's only for moments, so
that others can add facts meanwhile. Nobody takes the directory's lock while holding the list's.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from holdfast.core.errors import HoldfastError
from holdfast.core.file_checks import require_directory
from holdfast.core.files import lock_directory
from holdfast.memory.record import (
    CONSOLIDATION_LOCK,
    LESSONS,
    LOG_FILE,
    PROGRESS_FILE,
    PROGRESS_OF_ALL,
    RECORD_FILE,
    Record,
    refuse_former,
)
from holdfast.streams import Task
from holdfast.streams.batches import FACTS_FILE, read_batches
from holdfast.streams.item import quoted

_LOCK = ".facts.lock"
_SECONDS = 60.0  # to wait for another writer of the list
# What a directory may hold if its memory.json is lost or was never written.
_WITHOUT_RECORD = {
    *(".lock", _LOCK, CONSOLIDATION_LOCK),
    *(FACTS_FILE, LESSONS, PROGRESS_FILE, LOG_FILE, PROGRESS_OF_ALL),
}
PARTS = (RECORD_FILE, *sorted(_WITHOUT_RECORD))  # what is written in a memory's directory


def list_of(directory: Path) -> AbstractContextManager[None]:
    """Lock the list of facts during the block. Raises as :func:`.lock_directory`."""
    return lock_directory(directory, lock=_LOCK, patience=_SECONDS, parts=PARTS)


def signatures(directory: Path) -> tuple[tuple[int, int, int] | None, ...]:
    """A value that changes when ``memory.json`` or ``facts.jsonl`` is replaced."""
    return tuple(_signature(directory / name) for name in (RECORD_FILE, FACTS_FILE))


def _signature(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


class LessonCancelledError(Exception):
    """The lesson that is being learned is no longer on the list of facts."""


class ListedLesson:
    """A lesson that is being learned, and that somebody may take off the list meanwhile."""

    def __init__(self, directory: Path, number: int, task: Task) -> None:
        self._path, self._number, self._task = directory / FACTS_FILE, number, task
        self._seen: tuple[int, int, int] | None = None

    def check(self) -> None:
        """Raise LessonCancelledError if the lesson is no longer on the list.

        HoldfastError if the memory was moved or removed, which cancels nothing.
        """
        require_directory(self._path.parent)
        seen = _signature(self._path)
        if seen == self._seen:
            return
        listed = read_batches(self._path)[self._number - 1 : self._number]
        if [task.fingerprint for task in listed] != [self._task.fingerprint]:
            raise LessonCancelledError
        self._seen = seen


def check_list(directory: Path, tasks: Sequence[Task], record: Record) -> None:
    """Raise HoldfastError unless the list of facts begins with the batches of the lessons."""
    path = directory / FACTS_FILE
    if len(tasks) < len(record.lessons):
        raise HoldfastError(
            f"{path}: has {len(tasks)} of the {len(record.lessons)} lessons that were learned; "
            "restore the file"
        )
    for task, lesson in zip(tasks, record.lessons, strict=False):
        if task.fingerprint != lesson.fingerprint:
            raise HoldfastError(
                f"{path}: lesson {quoted(task.name)} is not as it was learned; restore the "
                "file, and give corrections to learn"
            )


def check_free(directory: Path) -> None:
    """Raise HoldfastError if a directory holds anything but parts of a memory that was begun."""
    refuse_former(directory)
    try:
        others = {path.name for path in directory.iterdir()} - _WITHOUT_RECORD
    except FileNotFoundError:
        return
    except OSError as error:
        raise HoldfastError(
            f"{directory}: cannot be read as a directory ({error.strerror}); choose another"
        ) from error
    if others := {name for name in others if not name.endswith(".part")}:
        raise HoldfastError(
            f"{directory}: holds {quoted(min(others))} and is no memory; choose another directory"
        )
