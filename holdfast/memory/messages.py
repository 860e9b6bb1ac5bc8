"""A message of several sentences: what is asked in it, and the answers together."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from holdfast.memory.answer import Answer
from holdfast.memory.words import words

_ENDS = re.compile(r"(?<=[.?!…])\s+|(?<=[。？！])|\n+")
_LEAST = 3  # words of a sentence that may ask for something


def sentences(message: str) -> list[str]:
    """The sentences of a message that may ask for something; none where it is one alone."""
    parts = [part.strip() for part in _ENDS.split(message) if part.strip()]
    if len(parts) < 2:
        return []
    return [part for part in parts if len(words(part)) >= _LEAST or not part.isascii()]


def joined(message: str, answers: Sequence[Answer]) -> Answer:
    """The answers to a message's sentences as one, each fact once, a line for each."""
    by_fact = {answer.fact: answer for answer in answers}
    first, *others = by_fact.values()
    return replace(
        first,
        question=message,
        text="\n".join(answer.text for answer in by_fact.values()),
        source="weights" if all(one.source == "weights" for one in by_fact.values()) else "list",
        waiting=any(answer.waiting for answer in by_fact.values()),
        further=tuple(answer.fact for answer in others if answer.fact is not None),
    )
