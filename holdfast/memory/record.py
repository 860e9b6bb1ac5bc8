"""The committed state of a memory: ``memory.json`` and the files that it names; the list's lock.

    MEMORY/
      memory.json    the model, the lessons in order, the files that hold them
      facts.jsonl    the list of facts, one lesson after another
      lessons/       each lesson's adapter and what the gate compares of its questions; one file
                     for many lessons once they are consolidated
      progress.json  while a lesson is learned, and after it failed
      lessons.log    the output of background processes
      consolidation.safetensors    the progress of a consolidation

``memory.json`` is replaced last, so a killed command changes nothing that is committed. The next
command removes its temporary files.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from pydantic import ConfigDict, TypeAdapter, ValidationError

from holdfast.core.errors import HoldfastError, InUseError, described
from holdfast.core.file_checks import remove_named, remove_unfinished
from holdfast.core.files import lock_directory, read_json, write_json
from holdfast.streams import Item, Task
from holdfast.streams.batches import FACTS_FILE, fact_key, read_batches, write_batches
from holdfast.streams.item import quoted

RECORD_FILE = "memory.json"
LESSONS = "lessons"
PROGRESS_FILE = "progress.json"
LOG_FILE = "lessons.log"
PROGRESS_OF_ALL = "consolidation.safetensors"
CONSOLIDATION_LOCK = ".consolidation.lock"
FORMAT = 1
_LOCK = ".facts.lock"
_SECONDS = 60.0  # to wait for another writer of the list
# What a directory may hold if its memory.json is lost or was never written.
_WITHOUT_RECORD = {
    *(".lock", _LOCK, CONSOLIDATION_LOCK),
    *(FACTS_FILE, LESSONS, PROGRESS_FILE, LOG_FILE, PROGRESS_OF_ALL),
}
PARTS = (RECORD_FILE, *sorted(_WITHOUT_RECORD))  # what is written in a memory's directory


@dataclass(frozen=True)
class LearnedLesson:
    """A learned lesson.

    name, fingerprint: of its batch in the list; file: of its tensors, in ``lessons``; missed: keys
    of the questions whose answers the adapter does not give; whole_turn: whether the adapter acts
    on the question too, as that of consolidated lessons does.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")
    name: str
    fingerprint: str
    file: str
    missed: tuple[str, ...]
    whole_turn: bool = False


@dataclass(frozen=True)
class LearnedNeurons:
    """Neurons with which the model answers the facts of lessons by itself, without a gate.

    file: of their tensors, in ``lessons``; lessons: how many of the first lessons they learned;
    facts: how many facts these had; missed: keys of the questions whose answers they do not give.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")
    file: str
    lessons: int
    facts: int
    missed: tuple[str, ...]


@dataclass(frozen=True)
class Gone:
    """What is forgotten. keys: of whole facts; former: pairs of a fact's key and one answer."""

    keys: frozenset[str] = frozenset()
    former: frozenset[tuple[str, str]] = frozenset()

    def has(self, item: Item) -> bool:
        """Whether an item, or the fact that it is a wording of, is forgotten."""
        key = fact_key(item)
        return key in self.keys or (key, item.answer) in self.former


@dataclass(frozen=True)
class Record:
    """The contents of ``memory.json``.

    model: name or absolute path; fingerprint: of the model's files; seed: of all random numbers;
    neurons: learned from the first lessons, for export alone; consolidated: how many of the first
    lessons were learned at once, including those that kept their own adapter; forgotten: keys of
    forgotten facts that the list may still have, since the record is written first; former: the
    same for corrected answers, as pairs of a fact's key and an answer.
    """

    model: str
    fingerprint: str
    seed: int
    lessons: tuple[LearnedLesson, ...]
    neurons: LearnedNeurons | None = None
    consolidated: int = 0
    forgotten: tuple[str, ...] = ()
    former: tuple[tuple[str, str], ...] = ()

    @property
    def gone(self) -> Gone:
        return Gone(frozenset(self.forgotten), frozenset(self.former))

    @property
    def is_consolidated(self) -> bool:
        """Whether all lessons were consolidated, or share one adapter."""
        one_adapter = len({lesson.file for lesson in self.lessons}) <= 1
        return one_adapter or self.consolidated >= len(self.lessons)

    @property
    def all_neurons(self) -> LearnedNeurons | None:
        """The neurons, if they were taught every lesson."""
        has_all = self.neurons is not None and self.neurons.lessons >= len(self.lessons)
        return self.neurons if has_all else None

    @property
    def files(self) -> set[str]:
        """The names of all files in ``lessons`` that belong to the memory."""
        files = {lesson.file for lesson in self.lessons}
        return files if self.neurons is None else {*files, self.neurons.file}


_RECORD = TypeAdapter(Record)


def is_memory(directory: Path) -> bool:
    """Whether the directory holds a memory."""
    return os.path.isfile(directory / RECORD_FILE)  # also False for a name that is too long


def require_memory(directory: Path) -> None:
    """Raise HoldfastError if there is no memory, or one of a former version."""
    refuse_former(directory)
    if not is_memory(directory):
        raise HoldfastError(
            f"{directory}: no such memory; holdfast learn {directory} FACTS makes one"
        )


def refuse_former(directory: Path) -> None:
    """Raise HoldfastError for a memory of commit 31412b6 or before: a trajectory with a list."""
    facts = directory / FACTS_FILE
    run = os.path.isfile(facts) and os.path.isfile(directory / "config.json")
    if run and not is_memory(directory):
        raise HoldfastError(
            f"{directory}: is a memory as commit 31412b6 had them on the embedded model, which "
            f"asks it; to go on with its facts: holdfast learn NEW {facts}"
        )


def read_record(directory: Path) -> Record:
    """Read ``memory.json``. Raises HoldfastError if it is damaged or of another format."""
    path = directory / RECORD_FILE
    values = read_json(path)
    try:
        version = values.pop("format")
        if version != FORMAT:
            raise HoldfastError(
                f"{path}: is of format {version}, and this Holdfast knows {FORMAT}; use the "
                "Holdfast that wrote it"
            )
        record = _RECORD.validate_json(json.dumps(values), strict=True)
        for file in record.files:
            if Path(file).name != file:
                raise ValueError(f"{file!r:.60} is no name of a file")
        return record
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        reason = described(error)
        if isinstance(error, ValidationError):
            first = error.errors()[0]
            reason = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise HoldfastError(
            f"{path}: is damaged ({reason}); restore it, or teach the facts of facts.jsonl to a "
            "new memory"
        ) from error


def write_record(directory: Path, record: Record) -> None:
    """Commit a record. The files that it names must have been written before."""
    write_json(directory / RECORD_FILE, {"format": FORMAT, **asdict(record)})


def list_of(directory: Path) -> AbstractContextManager[None]:
    """Lock the list of facts during the block. Raises as :func:`.lock_directory`.

    A process that learns holds the directory's lock all the time, but the list's only for moments,
    so that others can add facts meanwhile. Nobody takes the directory's lock while holding the
    list's.
    """
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


def read_memory(directory: Path) -> tuple[Record, tuple[Task, ...], tuple[object, ...]]:
    """The record and the list of one moment, and their :func:`signatures`."""
    while True:  # until no forgetting is committed between the two
        seen = signatures(directory)
        record = read_record(directory)
        tasks = listed_tasks(directory, record)
        if signatures(directory) == seen:
            return record, tasks, seen


def listed_tasks(directory: Path, record: Record) -> tuple[Task, ...]:
    """The batches on the list of facts, without what is forgotten."""
    return without(read_batches(directory / FACTS_FILE), record.gone)


def without(tasks: Iterable[Task], gone: Gone) -> tuple[Task, ...]:
    """Batches without forgotten facts, answers and their wordings; empty batches are left out."""
    remaining = [(task, tuple(item for item in task.items if not gone.has(item))) for task in tasks]
    return tuple(Task(task.name, items) for task, items in remaining if items)


def finish_forgetting(directory: Path) -> None:
    """Remove what is forgotten from the list of facts. The caller must hold the list's lock."""
    record = read_record(directory)
    if record.gone != Gone():
        write_batches(directory / FACTS_FILE, listed_tasks(directory, record))
        write_record(directory, replace(record, forgotten=(), former=()))


def remove_leftovers(directory: Path) -> None:
    """Remove what killed writers left, unless a consolidation runs. Nobody may be learning."""
    with contextlib.suppress(InUseError), lock_directory(directory, lock=CONSOLIDATION_LOCK):
        remove_half_written(directory)
        if is_memory(directory):
            remove_unnamed(directory, read_record(directory))


def remove_half_written(directory: Path) -> None:
    """Remove the temporary files of killed writers. The caller must hold all locks."""
    remove_unfinished(directory)
    remove_unfinished(directory / LESSONS)


def remove_unnamed(directory: Path, record: Record) -> None:
    """Remove lessons' files that the record does not name. Nobody may be learning."""
    with contextlib.suppress(OSError):
        names = {path.name for path in (directory / LESSONS).glob("*.safetensors")} - record.files
        remove_named(directory, [f"{LESSONS}/{name}" for name in names])
