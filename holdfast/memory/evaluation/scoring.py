"""The fraction of true verdicts, and an evenly spread choice of values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

_Value = TypeVar("_Value")


def fraction(verdicts: Sequence[bool]) -> float | None:
    """The fraction of verdicts that are true; None if there are none."""
    return sum(verdicts) / len(verdicts) if verdicts else None


def evenly(values: Sequence[_Value], limit: int | None) -> list[_Value]:
    """At most ``limit`` of the values, evenly spread, in order."""
    count = len(values)
    if limit is None or count <= limit:
        return list(values)
    return [values[place * count // limit] for place in range(limit)]
