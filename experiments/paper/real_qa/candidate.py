"""Candidates, the questions of a source with their accepted answers, and records left out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.core.errors import HoldfastError
from holdfast.streams.item import Item, braces_balance


class UnusableError(HoldfastError):
    """A record that cannot become a candidate. Its text is the reason, without the place."""


@dataclass(frozen=True)
class CandidateItem:
    """A question with every answer that its source accepts. Surrounding whitespace is stripped.

    source: a name in ``SOURCES``; id: ``<source>:<the source's own id>``.
    answers: the primary answer, then the aliases, without those that :func:`accepted` drops.

    Raises UnusableError when the question or the primary answer is empty, no text or no valid
    Unicode, or when the primary answer has unbalanced braces.

    Source: app:data-real.
    """

    source: str
    id: str
    question: str
    answers: tuple[str, ...]

    def __post_init__(self) -> None:
        _refuse_unreadable("question", self.question)
        _refuse_unreadable("answer", self.answers[0] if self.answers else None)
        if not braces_balance(self.answers[0]):
            raise UnusableError("the answer has unbalanced braces")
        # A frozen dataclass can normalise its fields only through object.__setattr__.
        object.__setattr__(self, "question", self.question.strip())
        object.__setattr__(self, "answers", accepted(self.answers))

    def item(self, **details: str) -> Item:
        """The item to learn: the primary answer is trained; the others are its aliases."""
        first, *others = self.answers
        return Item(self.question, first, tuple(others), self.id, details)


@dataclass(frozen=True)
class Left:
    """A record that was left out. place: such as ``dev.json record 17``; reason: one clause."""

    place: str
    reason: str


@dataclass(frozen=True)
class SourceRecords:
    """All records of a source: each of the ``records`` is either a candidate or left out."""

    candidates: tuple[CandidateItem, ...]
    left: tuple[Left, ...]
    records: int

    def __post_init__(self) -> None:
        assert self.records == len(self.candidates) + len(self.left)


def accepted(answers: Iterable[object]) -> tuple[str, ...]:
    r"""The answers that recall can be scored against, stripped, in order, unique up to case.

    Dropped are values that are not text, empty or not valid Unicode, and those with unbalanced
    braces, which cannot be read back from ``\boxed{...}``.
    """
    # lower(), not casefold(), because recall compares with lower().
    kept: dict[str, str] = {}
    for answer in answers:
        if isinstance(answer, str) and answer.strip() and _encodes(answer):
            text = answer.strip()
            if braces_balance(text):
                kept.setdefault(text.lower(), text)
    return tuple(kept.values())


def _refuse_unreadable(kind: str, value: object) -> None:
    if not isinstance(value, str) or not value.strip():
        raise UnusableError(f"no {kind}")
    if not _encodes(value):
        raise UnusableError(f"the {kind} is no valid Unicode")


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
