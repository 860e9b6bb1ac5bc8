"""What is told of a memory's lessons and answers: lines for a reader, values for a program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.memory.answering import Reply
from holdfast.memory.memory import Learned, Memory
from holdfast.streams import Item
from holdfast.streams.item import quoted

_FEW = 3


def lesson_lines(learned: Learned) -> list[str]:
    """Lines on what was learned, corrected, known before, and what is recalled of all."""
    lines = []
    if learned.batches:
        several = len(learned.batches) > 1
        which = f"{len(learned.batches)} batches" if several else f"batch {learned.batches[0]}"
        right = len(learned.facts) - len(learned.missed)
        lines.append(f"{which}: {right} of {len(learned.facts)} facts recalled")
        if learned.missed:
            lines.append(f"not recalled: {_listed(learned.missed)}")
    asked, answered = learned.reworded
    if asked:
        lines.append(f"other words: {answered} of {asked} wordings that were not learned answered")
    for correction in learned.corrected[:_FEW]:
        before, after = correction.before, correction.after
        answers = f"is {_line(after.answer)}, was {_line(before.answer)}"
        lines.append(f"corrected: {_line(after.question)} {answers}")
    if len(learned.corrected) > _FEW:
        lines.append(f"corrected: {len(learned.corrected) - _FEW} more")
    if learned.repeated:
        lines.append(f"learned before, not again: {_listed(learned.repeated)}")
    if learned.recalled is None:
        lines.append(f"nothing new; {learned.known} facts are learned already")
    else:
        lines.append(f"all so far: {learned.recalled} of {learned.known} facts recalled")
    return lines


def lesson_values(learned: Learned) -> dict[str, Any]:
    """The same for JSON: names of batches, questions, and counts."""
    asked, answered = learned.reworded
    return {
        "batches": list(learned.batches),
        "facts": len(learned.facts),
        "missed": [item.question for item in learned.missed],
        "corrected": [
            {"question": one.after.question, "is": one.after.answer, "was": one.before.answer}
            for one in learned.corrected
        ],
        "repeated": [item.question for item in learned.repeated],
        "other_words": {"asked": asked, "answered": answered},
        "known": learned.known,
        "recalled": learned.recalled,
    }


def untaught(memory: Memory, reply: Reply) -> str:
    """Why a question is not answered, what would be said, how sure it is, what is like it."""
    sure = "less than 1%" if reply.probability < 0.01 else f"{reply.probability:.0%}"
    would = f"it would say {quoted(reply.answer or reply.text)} ({sure} sure)"
    if memory.is_on_file(reply.question):
        again = f"holdfast learn {memory.directory} --again"
        return f"it was taught that, but has half forgotten it; {would}; {again} teaches it again"
    like = ", ".join(quoted(one) for one in memory.nearest(reply.question))
    return f"it was not taught that; {would}" + (f"; taught and like it: {like}" if like else "")


def reply_values(memory: Memory, question: str, reply: Reply) -> dict[str, Any]:
    """A reply for JSON. question: as it was asked; ``asked`` is its spelling for the model."""
    return {
        "question": " ".join(question.split()),
        "asked": reply.question,
        "answer": None if reply.taught is False else reply.answer,
        "would_say": reply.answer,
        "probability": round(reply.probability, 6),
        "taught": reply.taught,
        "on_file": memory.is_on_file(question),
        "nearest": [] if reply.taught else memory.nearest(question),
    }


def _listed(items: Sequence[Item]) -> str:
    shown = ", ".join(_line(item.question) for item in items[:_FEW])
    return f"{shown} and {len(items) - _FEW} more" if len(items) > _FEW else shown


def _line(text: str) -> str:
    """A text in quotes, on one line, shortened."""
    return quoted(text, longest=200)
