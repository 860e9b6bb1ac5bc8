"""A message that asks for several things: its questions, and their answers together."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from holdfast.memory.answer import Answer
from holdfast.memory.words import words

_ENDS = re.compile(r"(?<=[.?!…])\s+|(?<=[。？！])|\n+")
_ASKS = (
    r"(?=(?:also\s+)?(?:(?:at|by|for|from|in|of|on|to|with)\s+)?"
    r"(?:what|which|who|whom|whose|where|when|why|how)\b)"
)
_AND = re.compile(rf"[,;]?\s+and\s+{_ASKS}", re.IGNORECASE)
_COMMA = re.compile(rf"[,;]\s+{_ASKS}", re.IGNORECASE)
_PRONOUN = re.compile(
    r"\b(?:(?P<owner>his|its|their|her(?=\s+\w))|he|she|it|they|him|them|her)\b", re.IGNORECASE
)
_LEAST = 3  # words of a sentence that may ask for something


def questions_in(message: str) -> list[str]:
    """The parts of a message that may ask for something; none where it is one sentence alone.

    Parts are sentences, and what ``and``, with commas before it, joins before a word that asks:
    *Where does Ada live, who is her doctor and what does she drink?*
    """
    sentences = [part.strip() for part in _ENDS.split(message) if part.strip()]
    parts = []
    for sentence in sentences:
        *before, last = _AND.split(sentence)
        parts += [*(part for joined in before for part in _COMMA.split(joined)), last]
    if len(parts) < 2:
        return []
    return [part for part in parts if len(words(part)) >= _LEAST or not part.isascii()]


def asked_of(question: str, name: str) -> str | None:
    """A question with a name in place of its first pronoun; None where it has no pronoun."""
    pronoun = _PRONOUN.search(question)
    if pronoun is None:
        return None
    ending = "'s" if pronoun["owner"] else ""
    return f"{question[: pronoun.start()]}{name}{ending}{question[pronoun.end() :]}"


def joined(message: str, answers: Sequence[Answer]) -> Answer:
    """The answers to a message's sentences as one, each fact once, a line for each."""
    distinct = list({answer.fact: answer for answer in answers}.values())
    first, *others = distinct
    return replace(
        first,
        question=message,
        text="\n".join(answer.text for answer in distinct),
        source="weights" if all(answer.source == "weights" for answer in distinct) else "list",
        waiting=any(answer.waiting for answer in distinct),
        further=tuple(answer.fact for answer in others if answer.fact is not None),
    )
