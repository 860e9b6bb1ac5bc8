"""Validate candidates by the paper's rules, with one registry for the whole stream."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping

from holdfast.core.errors import HoldfastError
from holdfast.streams.item import Item, braces_balance, clean

LONGEST_ANSWER = 8  # words
FIELDS = ("entity", "question", "answer")


class Validator:
    """Accepts valid candidates with a new entity and question; gives the reason for a rejection.

    The reasons: ``not an object``, ``missing field``, ``empty field``, ``not text``, ``line
    break``, ``entity not in question``, ``answer too long``, ``unbalanced braces``, ``repeated
    entity``, ``repeated question``. Entities and questions are compared without case, with
    whitespace collapsed, in Unicode form NFC.

    Source: app:data-llm (validation), app:data-uniqueness.
    """

    def __init__(self) -> None:
        self._entities: set[str] = set()
        self._questions: set[str] = set()

    def accept(self, candidate: object, topic: str) -> Item | str:
        """Register the candidate and return it as an item, or return the reason of rejection."""
        texts = _texts(candidate)
        if isinstance(texts, str):
            return texts
        entity, question, answer = texts
        entity_key, question_key = normalised(entity), normalised(question)
        reason = _problem(entity_key, question, question_key, answer)
        if reason is None and entity_key in self._entities:
            reason = "repeated entity"
        if reason is None and question_key in self._questions:
            reason = "repeated question"
        if reason is not None:
            return reason
        self._entities.add(entity_key)
        self._questions.add(question_key)
        return Item(question, answer, details={"topic": topic, "entity": " ".join(entity.split())})


def normalised(text: str) -> str:
    """``text`` without case, its whitespace collapsed, NFC."""
    return " ".join(unicodedata.normalize("NFC", text.casefold()).split())


def _texts(candidate: object) -> tuple[str, str, str] | str:
    if not isinstance(candidate, Mapping):
        return "not an object"
    values = [candidate.get(field) for field in FIELDS]
    if None in values:
        return "missing field"
    # A JSON number is accepted as an answer, such as a year.
    values[2] = _number_as_text(values[2])
    if not all(isinstance(value, str) for value in values):
        return "not text"
    if not all(str(value).strip() for value in values):
        return "empty field"
    try:
        entity, question, answer = (
            clean(field, value) for field, value in zip(FIELDS, values, strict=True)
        )
    except HoldfastError:  # half of a surrogate pair
        return "not text"
    return entity, question, answer


def _number_as_text(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    finite = isinstance(value, int) or math.isfinite(value)
    return str(value) if finite else value


def _problem(entity_key: str, question: str, question_key: str, answer: str) -> str | None:
    # splitlines splits at every line separator, Unicode's included.
    if any(len(text.splitlines()) > 1 for text in (question, answer)):
        return "line break"
    if entity_key not in question_key:
        return "entity not in question"
    if len(answer.split()) > LONGEST_ANSWER:
        return "answer too long"
    if not braces_balance(answer):
        return "unbalanced braces"
    return None
