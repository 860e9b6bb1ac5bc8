"""The definition of a source: where it is published, and how its records are parsed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from holdfast.builders.real_qa.candidate import CandidateItem, Left, SourceRecords, UnusableError
from holdfast.core.errors import HoldfastError
from holdfast.streams.item import quoted


@dataclass(frozen=True)
class Hub:
    """A Hugging Face dataset: ``datasets.load_dataset(path, config, split=split)``."""

    path: str
    config: str | None
    split: str

    def __str__(self) -> str:
        return " ".join(part for part in (self.path, self.config, self.split) if part)


@dataclass(frozen=True)
class PublishedRecord:
    """One record as it is published.

    where: the file's path and the record's number, for errors; place: ``where`` without folders;
    key: an id for a record that has none of its own.
    """

    where: str
    place: str
    key: str
    values: object


@dataclass(frozen=True)
class Fields:
    """The parsed fields of a record, unchecked. id: None when absent; answers: primary first."""

    id: object
    question: object
    answers: Iterable[object]


@dataclass(frozen=True)
class Source:
    """One of the ten datasets of Real-QA.

    patterns: match the ends of its published files' paths, as in ``PurePath.match``.
    records: iterates over the records of one published file; published: parses one of them; row:
    parses a row of the hub's dataset, whose format differs.

    Source: app:data-real, tab:realqa-sources.
    """

    name: str
    kind: Literal["factoid", "mcqa"]
    hub: Hub
    patterns: tuple[str, ...]
    records: Callable[[Path], Iterator[PublishedRecord]]
    published: Callable[[object], Fields]
    row: Callable[[object], Fields]


def gather(
    name: str, records: Iterable[PublishedRecord], say: Callable[[object], Fields]
) -> SourceRecords:
    """Read records as candidates of the source ``name``, with unique ids.

    Raises HoldfastError naming the first record whose structure is not the source's.
    """
    candidates: list[CandidateItem] = []
    left: list[Left] = []
    taken: set[str] = set()
    count = 0
    for record in records:
        count += 1
        try:
            entry = say(record.values)
            # Any: CandidateItem checks the types.
            question: Any = entry.question
            answers: Any = tuple(entry.answers)
            label = _unique(f"{name}:{_label(entry.id) or record.key}", taken)
            candidates.append(CandidateItem(name, label, question, answers))
        except UnusableError as reason:
            left.append(Left(record.place, str(reason)))
            continue
        except HoldfastError as error:
            raise HoldfastError(f"{record.where}: {error}") from None
        taken.add(label)
    return SourceRecords(tuple(candidates), tuple(left), count)


def member(values: object, key: str) -> Any:
    """``values[key]``; HoldfastError when values is no object or has no such key."""
    if not isinstance(values, dict):
        raise HoldfastError(f"an object with {quoted(key)} is expected, not {_kind(values)}")
    if key not in values:
        raise HoldfastError(f"{quoted(key)} is missing")
    return values[key]


def members(values: object, key: str) -> list[Any]:
    """The list ``values[key]``, empty for null; HoldfastError when it is anything else."""
    value = member(values, key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise HoldfastError(f"{quoted(key)} is no list but {_kind(value)}")
    return value


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a text", type(None): "null"}
    return names.get(type(value), "a number")


def _label(value: object) -> str | None:
    """A record's own id on one line; None unless it is text or an integer, and printable."""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        return None
    label = " ".join(str(value).split())
    return label if label.isprintable() else None


def _unique(label: str, taken: set[str]) -> str:
    if label not in taken:
        return label
    number = 2
    while f"{label}#{number}" in taken:
        number += 1
    return f"{label}#{number}"
