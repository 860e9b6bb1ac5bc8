"""Which replies are taught answers, and what fraction of verdicts is true."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from holdfast.streams.answers import bare

_Value = TypeVar("_Value")


class TaughtAnswers:
    """The answers of a memory's facts; a reply is one of them but for case and a full stop."""

    def __init__(self, answers: Iterable[str]) -> None:
        self._bare = {bare(answer) for answer in answers}

    def __contains__(self, reply: str) -> bool:
        return bare(reply) in self._bare


def fraction(verdicts: Sequence[bool]) -> float | None:
    """The fraction of verdicts that are true; None of none."""
    return sum(verdicts) / len(verdicts) if verdicts else None


def evenly(values: Sequence[_Value], limit: int | None) -> list[_Value]:
    """At most ``limit`` of the values, evenly spread, in order."""
    count = len(values)
    if limit is None or count <= limit:
        return list(values)
    return [values[place * count // limit] for place in range(limit)]
