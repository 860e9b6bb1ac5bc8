"""The state of every lesson: learned, being learned, waiting, or failed and why; what cancels one.

It follows from the committed record, the list of facts, and ``progress.json``, which the process
that learns keeps writing. Reading it changes nothing. No model is needed.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from holdfast.core.errors import HoldfastError
from holdfast.core.file_checks import require_directory
from holdfast.core.files import is_locked, read_json, write_json
from holdfast.memory.plan import Correction
from holdfast.memory.record import (
    PROGRESS_FILE,
    LearnedLesson,
    check_list,
    finish_forgetting,
    is_memory,
    list_of,
    read_memory,
    require_memory,
    signatures,
)
from holdfast.memory.wordings import has_fact
from holdfast.streams import Item, Task
from holdfast.streams.batches import (
    FACTS_FILE,
    fact_key,
    fact_question,
    is_wording,
    latest,
    read_batches,
    write_batches,
)
from holdfast.streams.item import question_key, same_answer

_SECONDS = 0.5  # least time between two writes of the progress


@dataclass(frozen=True)
class LessonState:
    """The state of a lesson.

    number: from 1, in the order of the list of facts; learned: how many of its facts are learned by
    now; missed: questions whose answers the weights do not give; corrected: answers that replace
    earlier ones; reason: why it failed; code: of the HoldfastError that ended it.
    """

    number: int
    name: str
    state: Literal["waiting", "learning", "learned", "failed"]
    facts: int
    learned: int = 0
    missed: tuple[str, ...] = ()
    corrected: tuple[Correction, ...] = ()
    reason: str = ""
    code: str = ""

    @property
    def ended(self) -> bool:
        """Whether the lesson will not change unless somebody teaches again."""
        return self.state in ("learned", "failed")


def lesson_states(directory: Path) -> list[LessonState]:
    """The state of every lesson on file, in order; empty if there is no memory.

    Raises HoldfastError if the list of facts lacks a learned lesson.
    """
    if not is_memory(directory):
        return []
    record, tasks, _ = read_memory(directory)
    check_list(directory, tasks, record)
    lessons = record.lessons
    answers: dict[str, Item] = {}
    states = []
    for number, task in enumerate(tasks, start=1):
        corrected = corrections_of(task, answers)
        if number <= len(lessons):
            states.append(_learned(number, task, lessons[number - 1], corrected))
        else:
            count = len(questions_of(task))
            states.append(LessonState(number, task.name, "waiting", count, corrected=corrected))
    if len(tasks) > len(lessons):
        states[len(lessons)] = _in_progress(directory, states[len(lessons)])
    return states


def _learned(
    number: int, task: Task, lesson: LearnedLesson, corrected: tuple[Correction, ...]
) -> LessonState:
    texts = questions_of(task)
    missed = tuple(texts.get(key, key) for key in lesson.missed)
    right = len(texts) - len(missed)
    return LessonState(number, task.name, "learned", len(texts), right, missed, corrected)


def _in_progress(directory: Path, first: LessonState) -> LessonState:
    """The first lesson that is not learned, with what ``progress.json`` says about it."""
    try:
        values = read_json(directory / PROGRESS_FILE)
        number, learned = int(values["lesson"]), int(values["learned"])
        reason, code = str(values["failed"]), str(values.get("code", ""))
    except (HoldfastError, KeyError, TypeError, ValueError):  # a missing file: no lesson has begun
        return first
    if number != first.number:
        return first
    if is_locked(directory):
        return replace(first, state="learning", learned=learned)
    return replace(first, state="failed", reason=reason, code=code) if reason else first


def waiting_lessons(directory: Path) -> list[LessonState]:
    """The lessons on file that are not learned, in order; empty if there is no memory."""
    return [state for state in lesson_states(directory) if state.state != "learned"]


def cancel_lessons(directory: Path, numbers: Collection[int] | None = None) -> list[LessonState]:
    """Take lessons that are not learned off the list, all by default; return them.

    Later lessons move up and lose other wordings of cancelled facts. A process that learns a
    cancelled lesson drops it within a step. If a number is not on file or is learned already,
    HoldfastError is raised, and nothing changed.
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


def questions_of(task: Task) -> dict[str, str]:
    """The questions of a batch's facts by key; other wordings count as their fact."""
    return {fact_key(item): fact_question(item) for item in task.items}


def corrections_of(task: Task, answers: dict[str, Item]) -> tuple[Correction, ...]:
    """The corrections of a batch to ``answers``, the newest facts by key, which it updates."""
    corrections = []
    for item in task.items:
        if is_wording(item):
            continue
        before = answers.get(question_key(item.question))
        if before is not None and not same_answer(before, item):
            corrections.append(Correction(before, item))
        answers[question_key(item.question)] = item
    return tuple(corrections)


def state_values(state: LessonState) -> dict[str, Any]:
    """A lesson's state for JSON."""
    values: dict[str, Any] = {
        "lesson": state.number,
        "name": state.name,
        "state": state.state,
        "facts": state.facts,
    }
    if state.state == "learning":
        values |= {"learned": state.learned, "total": state.facts}
    if state.state == "learned":
        values |= {"learned": state.learned, "missed": list(state.missed)}
    if state.state == "failed":
        values |= {"reason": state.reason}
    return {**values, "corrected": correction_values(state.corrected)}


def correction_values(corrections: Sequence[Correction]) -> list[Mapping[str, str]]:
    """Corrections for JSON."""
    return [
        {
            "question": correction.after.question,
            "is": correction.after.answer,
            "was": correction.before.answer,
        }
        for correction in corrections
    ]


class LessonProgress:
    """Writes ``progress.json``; for the process that holds the directory's lock."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._written = directory, 0.0
        self._number = 0

    def begin(self, number: int) -> None:
        self._number = number
        self._write(0)

    def step(self, learned: int) -> None:
        """At most every half second."""
        if time.monotonic() - self._written >= _SECONDS:
            self._write(learned)

    def failed(self, reason: str, code: str = "") -> None:
        self._write(0, " ".join(reason.split()) or "unknown", code)

    def done(self) -> None:
        with contextlib.suppress(OSError):
            (self._directory / PROGRESS_FILE).unlink(missing_ok=True)

    def _write(self, learned: int, failed: str = "", code: str = "") -> None:
        self._written = time.monotonic()
        values = {
            "lesson": self._number,
            "learned": learned,
            "failed": failed,
            "code": code,
            "process": os.getpid(),
        }
        with contextlib.suppress(HoldfastError):  # a full disk shows elsewhere
            write_json(self._directory / PROGRESS_FILE, values)


class LessonCancelledError(Exception):
    """The lesson that is being learned is no longer on the list of facts."""


class ListedLesson:
    """A lesson that is being learned, and that somebody may take off the list meanwhile."""

    def __init__(self, directory: Path, number: int, task: Task) -> None:
        self._directory, self._number, self._task = directory, number, task
        self._seen: object = None

    def check(self) -> None:
        """Raise LessonCancelledError if the lesson is no longer on the list.

        HoldfastError if the memory was moved or removed, which cancels nothing.
        """
        require_directory(self._directory)
        seen = signatures(self._directory)
        if seen == self._seen:
            return
        listed = read_batches(self._directory / FACTS_FILE)[self._number - 1 : self._number]
        if [task.fingerprint for task in listed] != [self._task.fingerprint]:
            raise LessonCancelledError
        self._seen = seen
