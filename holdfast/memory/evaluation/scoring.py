"""When a reply is right, and how many are."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import TypeVar

_Value = TypeVar("_Value")


def says(reply: str, answers: Iterable[str]) -> bool:
    """Whether an answer occurs in a reply as whole words, whatever the case.

    A number does not occur in a longer one: ``8`` is not in ``8.5``.
    """
    folded = _folded(reply)
    return any(
        re.search(rf"(?<!\w)(?<!\d[.,]){re.escape(_folded(answer))}(?!\w|[.,]\d)", folded)
        for answer in answers
    )


class TaughtAnswers:
    """The answers of a memory's facts; a reply is one of them but for case and a full stop."""

    def __init__(self, answers: Iterable[str]) -> None:
        self._bare = {_bare(answer) for answer in answers}

    def __contains__(self, reply: str) -> bool:
        return _bare(reply) in self._bare


def fraction(verdicts: Sequence[bool]) -> float | None:
    """The fraction of verdicts that are true; None of none."""
    return sum(verdicts) / len(verdicts) if verdicts else None


def evenly(values: Sequence[_Value], limit: int | None) -> list[_Value]:
    """At most ``limit`` of the values, evenly spread, in order."""
    count = len(values)
    if limit is None or count <= limit:
        return list(values)
    return [values[place * count // limit] for place in range(limit)]


def _bare(text: str) -> str:
    return _folded(text).rstrip(". ")


def _folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).replace("’", "'").casefold().split())
