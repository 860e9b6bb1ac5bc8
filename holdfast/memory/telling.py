"""Describe lessons and answers: lines for a reader, JSON values for a program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.memory.answering import Answer
from holdfast.memory.batch import lesson_title
from holdfast.memory.memory import Memory
from holdfast.memory.plan import LessonOutcome
from holdfast.memory.states import correction_values
from holdfast.streams import Item
from holdfast.streams.batches import newest
from holdfast.streams.item import counted, question_key, quoted

_FEW = 3
_LONGEST = 200  # symbols of a question or answer in a line


def outcome_lines(outcome: LessonOutcome) -> list[str]:
    """Lines on what was learned and corrected, and what was known before."""
    lines = []
    if outcome.lessons:
        several = len(outcome.lessons) > 1
        which = f"{len(outcome.lessons)} lessons" if several else lesson_title(outcome.lessons[0])
        right = len(outcome.facts) - len(outcome.missed)
        facts = counted(len(outcome.facts), "fact")
        lines.append(f"{which}: {right} of {facts} answered from the weights")
    if outcome.missed:
        lines.append(f"answered from the list only: {_listed(outcome.missed)}")
    for correction in outcome.corrected[:_FEW]:
        before, after = correction.before, correction.after
        lines.append(
            f"corrected: {_line(after.question)} is {_line(after.answer)}, was "
            f"{_line(before.answer)}"
        )
    if len(outcome.corrected) > _FEW:
        lines.append(f"corrected: {len(outcome.corrected) - _FEW} more")
    if outcome.corrected:
        lines.append("former answers stay until holdfast forget MEMORY --corrected removes them")
    if outcome.repeated:
        lines.append(f"learned before, not again: {_listed(outcome.repeated)}")
    lines += notice_lines(outcome.notices)
    nothing = "" if outcome.lessons else "nothing new; "
    lines.append(f"{nothing}{counted(outcome.known, 'fact')} on file")
    return lines


def outcome_values(outcome: LessonOutcome) -> dict[str, Any]:
    """An outcome for JSON: names of lessons, questions, counts."""
    return {
        "lessons": list(outcome.lessons),
        "facts": len(outcome.facts),
        "missed": [item.question for item in outcome.missed],
        "corrected": correction_values(outcome.corrected),
        "repeated": [item.question for item in outcome.repeated],
        "notices": list(outcome.notices),
        "known": outcome.known,
    }


def notice_lines(notices: Sequence[str]) -> list[str]:
    """Lines with the first few notices, and the number of the others."""
    few = [f"note: {notice}" for notice in notices[:_FEW]]
    return [*few, f"note: {len(notices) - _FEW} more"] if len(notices) > _FEW else few


def answer_values(memory: Memory, answer: Answer) -> dict[str, Any]:
    """An answer for JSON: its text, its source, and the taught question that it belongs to."""
    return {
        "question": " ".join(answer.question.split()),
        "answer": answer.text,
        "source": answer.source,
        "taught": answer.taught,
        "waiting": answer.waiting,
        "fact": answer.fact.question if answer.fact else None,
        "further": [item.question for item in answer.further],
        "nearest": [] if answer.taught else memory.nearest(answer.question),
    }


def remembered(memory: Memory) -> dict[str, Any]:
    """All facts on file, newest first, and where their answers come from.

    Each fact has ``question``, ``answer``, ``batch`` (its lesson's number), ``batch_name``,
    ``recalled``: whether the weights gave the answer at the end of the lesson; and ``source``:
    ``weights``, ``list``, or ``waiting`` if its lesson is not learned yet.
    """
    tasks, learned = memory.tasks, memory.horizon
    last_lesson = {
        question_key(item.question): number
        for number, task in enumerate(tasks, start=1)
        for item in task.items
    }
    missed = {question_key(item.question) for item in memory.missed()}
    facts: list[dict[str, Any]] = []
    for item in newest(tasks):
        key = question_key(item.question)
        number = last_lesson[key]
        source = "waiting" if number > learned else "list" if key in missed else "weights"
        facts.append(
            {
                "question": item.question,
                "answer": item.answer,
                "batch": number,
                "batch_name": tasks[number - 1].name,
                "recalled": source == "weights",
                "source": source,
            }
        )
    return {
        "memory": memory.directory.resolve().name,
        "model": memory.model,
        "batches": learned,
        "facts": sorted(facts, key=lambda fact: -fact["batch"]),
    }


def _listed(items: Sequence[Item]) -> str:
    first = ", ".join(_line(item.question) for item in items[:_FEW])
    return f"{first} and {len(items) - _FEW} more" if len(items) > _FEW else first


def _line(text: str) -> str:
    return quoted(text, longest=_LONGEST)
