"""The questions of an evaluation: probes of a memory's facts, and everyday questions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, TypeVar

from holdfast.core.errors import HoldfastError
from holdfast.memory.wordings import HELD_OUT
from holdfast.memory.words import loose_key
from holdfast.streams import Item
from holdfast.streams.item import question_key, quoted
from holdfast.streams.rows import json_object, lines_of

logger = logging.getLogger(__name__)
_PROBE_KEYS = ("question", "wordings", "reverse", "sentence", "others", "untaught")
_Line = TypeVar("_Line")


@dataclass(frozen=True)
class Probe:
    """A fact, and what is asked about it.

    wordings: its question in other words; reverse: a question in the other direction, and its
    answer; sentence: a text that the fact's answer continues; others: questions of the same
    relation about untaught entities; untaught: questions of untaught relations about its entity.
    """

    question: str
    answer: str
    wordings: tuple[str, ...] = ()
    reverse: tuple[str, str] | None = None
    sentence: str | None = None
    others: tuple[str, ...] = ()
    untaught: tuple[str, ...] = ()


@dataclass(frozen=True)
class EverydayQuestion:
    """A question of common knowledge; a reply that contains one of the answers is right."""

    question: str
    answers: tuple[str, ...]


def probes_of(facts: Iterable[Item]) -> list[Probe]:
    """A probe for each fact, from its details; an empty one, with a warning, if these are wrong."""
    probes = []
    for fact in facts:
        probe = Probe(fact.question, fact.answer)
        details = {**fact.details, "wordings": fact.details.get(HELD_OUT, [])}
        try:
            probe = _filled(probe, details)
        except HoldfastError as error:
            logger.warning("%s is not probed: in its details, %s", quoted(fact.question), error)
        probes.append(probe)
    return probes


def with_probes(probes: Sequence[Probe], path: Path) -> list[Probe]:
    """The probes, with the fields that a file of JSON lines gives in place of their own.

    Raises HoldfastError naming a line that is invalid or whose question was not taught.
    """
    places = {question_key(probe.question): place for place, probe in enumerate(probes)}
    filled = list(probes)

    def take(values: Mapping[str, Any]) -> None:
        if unknown := [key for key in values if key not in _PROBE_KEYS]:
            raise HoldfastError(f"unknown key {quoted(unknown[0])}; use {', '.join(_PROBE_KEYS)}")
        question = values.get("question")
        place = places.get(question_key(question)) if isinstance(question, str) else None
        if place is None:
            raise HoldfastError(f"{quoted(question)} is no taught question; give one that is")
        filled[place] = _filled(filled[place], values)

    _each_line(path, take)
    return filled


def everyday_questions(path: Path | None = None) -> list[EverydayQuestion]:
    """The 240 questions of the package, or those of a file of JSON lines, each checked."""

    def take(values: Mapping[str, Any]) -> EverydayQuestion:
        answers = _texts(values, "answers")
        if not _is_text(values.get("question")) or not answers:
            raise HoldfastError('needs a "question" and "answers", a list of texts')
        return EverydayQuestion(values["question"], answers)

    return _each_line(path or files("holdfast.memory") / "everyday.jsonl", take)


def without_taught(
    probes: Sequence[Probe], everyday: Sequence[EverydayQuestion], asked: Iterable[str]
) -> tuple[list[Probe], list[EverydayQuestion]]:
    """Leave out what was learned, whatever its case and spacing; a ``sentence`` always stays."""
    taught = {loose_key(text) for text in asked}

    def unlearned(texts: Sequence[str]) -> tuple[str, ...]:
        return tuple(text for text in texts if loose_key(text) not in taught)

    remaining = [
        replace(
            probe,
            wordings=unlearned(probe.wordings),
            reverse=probe.reverse if probe.reverse and unlearned(probe.reverse[:1]) else None,
            others=unlearned(probe.others),
            untaught=unlearned(probe.untaught),
        )
        for probe in probes
    ]
    return remaining, [row for row in everyday if loose_key(row.question) not in taught]


def _filled(probe: Probe, values: Mapping[str, Any]) -> Probe:
    """The probe with the fields of ``values``; HoldfastError for one of another form."""
    filled = replace(
        probe,
        wordings=_texts(values, "wordings", probe.wordings),
        others=_texts(values, "others", probe.others),
        untaught=_texts(values, "untaught", probe.untaught),
    )
    if (reverse := values.get("reverse")) is not None:
        if not isinstance(reverse, dict) or not all(
            _is_text(reverse.get(key)) for key in ("question", "answer")
        ):
            raise HoldfastError('"reverse" is no {"question": ..., "answer": ...}')
        filled = replace(filled, reverse=(reverse["question"], reverse["answer"]))
    if (sentence := values.get("sentence")) is not None:
        if not _is_text(sentence):
            raise HoldfastError('"sentence" is no text')
        filled = replace(filled, sentence=sentence)
    return filled


def _texts(values: Mapping[str, Any], key: str, otherwise: tuple[str, ...] = ()) -> tuple[str, ...]:
    given = values.get(key, list(otherwise))
    if not isinstance(given, list) or not all(map(_is_text, given)):
        raise HoldfastError(f"{quoted(key)} is no list of texts")
    return tuple(given)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _each_line(path: Path | Traversable, take: Callable[[Mapping[str, Any]], _Line]) -> list[_Line]:
    """The results of ``take`` on each line of a file; its errors get the file and the line."""
    if not path.is_file():
        raise HoldfastError(f"{path}: no such file; give a file of JSON lines")
    try:
        lines = lines_of(path.read_bytes())
    except OSError as error:
        raise HoldfastError(f"{path}: cannot be read ({error.strerror})") from error
    taken = []
    for place, raw in lines:
        try:
            taken.append(take(json_object(raw)))
        except HoldfastError as error:
            raise HoldfastError(f"{path} {place}: {error}") from None
    if not taken:
        raise HoldfastError(f"{path}: is empty; write one JSON object a line")
    return taken
