"""Facts, wherever they come from, as a stream; and the file in which a memory keeps its own."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from holdfast.core.errors import HoldfastError
from holdfast.streams import Item, QuestionRegistry, Stream, Task, load_stream
from holdfast.streams.item import quoted
from holdfast.streams.jsonl import json_object, lines_of
from holdfast.streams.rows import Row, read_rows, row_of, stream_of

Fact: TypeAlias = Item | tuple[str, str] | Mapping[str, Any]
Facts: TypeAlias = str | Path | Stream | Iterable[Fact]

STANDARD_INPUT = "-"
_TABLES = (".csv", ".tsv")
_SEPARATORS = (",", ";", "\t")  # some spreadsheets save a .csv with semicolons
_NEEDED = {"question", "answer"}
_ALIASES = "|"


def stream_from(facts: Facts) -> Stream:
    """Facts as a stream whose tasks are the batches, in order.

    facts: whatever :func:`holdfast.load_stream` takes; the path of a ``.csv`` or ``.tsv`` file
    with columns ``question`` and ``answer``, perhaps also ``aliases`` (separated by ``|``),
    ``task``, ``id``; ``-`` for lines of JSON from standard input; a stream; items, pairs
    (question, answer) or mappings with the keys of a JSON line.
    Raises HoldfastError naming the file and the line, or the number of the fact.
    """
    if isinstance(facts, Stream):
        return facts
    if isinstance(facts, (str, Path)):
        return _read(facts)
    records = [(f"number {number}", fact) for number, fact in enumerate(facts, start=1)]
    return _stream("fact", read_rows("fact", records, _values))


def read_own(path: Path) -> tuple[Task, ...]:
    """The batches that a memory has on file; none where the file is not there.

    Unlike a stream, a memory may ask a question in two batches: the later answer corrects the
    former.
    Raises HoldfastError naming the line when the file is damaged.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise HoldfastError(f"{path}: cannot be read ({error.strerror})") from error
    batches: dict[str, list[Item]] = {}
    asked: dict[str, QuestionRegistry] = {}
    for place, raw in lines_of(content):
        try:
            row = row_of(place, json_object(raw))
            if row.task is None:
                raise HoldfastError('"task" is missing; each fact of a memory names its batch')
        except HoldfastError as error:
            raise HoldfastError(f"{path} {place}: {error}") from None
        asked.setdefault(row.task, QuestionRegistry()).add(row.item, f"{path} {place}")
        batches.setdefault(row.task, []).append(row.item)
    return tuple(Task(name, tuple(items)) for name, items in batches.items())


def _read(source: str | Path) -> Stream:
    if str(source) == STANDARD_INPUT:
        place = "standard input"
        content = sys.stdin.buffer.read() if sys.stdin else b""
        return _stream(place, read_rows(place, lines_of(content), json_object))
    path = Path(source)
    return _read_table(path) if path.suffix.lower() in _TABLES else load_stream(source)


def _read_table(path: Path) -> Stream:
    """A table with a header; empty cells are treated as missing keys."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            header, separator = _header(path, file.readline())
            reader = csv.DictReader(file, header, delimiter=separator, strict=True)
            rows = ((f"line {reader.line_num + 1}", row) for row in reader)
            # Spreadsheets may save empty rows.
            records = [(line, row) for line, row in rows if any(_cells_of(row))]
    except FileNotFoundError:
        raise HoldfastError(f"{path}: no such file; give the path of a table") from None
    except UnicodeDecodeError:
        raise HoldfastError(f"{path}: is no UTF-8 text; save the file as UTF-8") from None
    except csv.Error as error:
        raise HoldfastError(f"{path}: is no table ({error}); check its quotes") from None
    except OSError as error:
        raise HoldfastError(f"{path}: cannot be read ({error.strerror})") from error
    return _stream(str(path), read_rows(str(path), records, _cells), path.stem)


def _header(path: Path, line: str) -> tuple[list[str], str]:
    """The names of the columns, in small letters, and what separates them."""
    for separator in _SEPARATORS:
        cells = next(csv.reader([line], delimiter=separator, strict=True), [])
        names = [cell.strip().lower() for cell in cells]
        twice = [name for name in names if name and names.count(name) > 1]
        if twice:
            raise HoldfastError(f"{path}: has two columns {quoted(twice[0])}; keep one")
        if set(names) >= _NEEDED:
            return names, separator
    raise HoldfastError(
        f'{path}: its first line must name the columns "question" and "answer", separated by a '
        "comma, a semicolon or a tab"
    )


def _cells_of(row: Mapping[str | None, Any]) -> Iterator[str]:
    for key, cell in row.items():
        yield from cell if key is None else [(cell or "").strip()]


def _cells(row: Mapping[str | None, Any]) -> dict[str, Any]:
    if None in row:
        raise HoldfastError("has more cells than the first line; put quotes around a text")
    if None in row.values():
        raise HoldfastError("has fewer cells than the first line; put quotes around a text")
    values = {str(key): str(cell) for key, cell in row.items() if cell.strip() or key in _NEEDED}
    if "aliases" in values:
        aliases = [alias.strip() for alias in values["aliases"].split(_ALIASES)]
        return {**values, "aliases": [alias for alias in aliases if alias]}
    return dict(values)


def _values(fact: object) -> Mapping[str, Any]:
    """The values of :data:`holdfast.streams.rows.KEYS` that a fact has."""
    if isinstance(fact, Mapping):
        return fact
    if isinstance(fact, Item):
        values = {"question": fact.question, "answer": fact.answer, "aliases": fact.aliases}
        return {**values, "details": fact.details, **({"id": fact.id} if fact.id else {})}
    if isinstance(fact, (tuple, list)) and len(fact) == len(_NEEDED):
        return {"question": fact[0], "answer": fact[1]}
    raise HoldfastError(
        f"{fact!r:.60} is no fact; give a pair (question, answer), a mapping or an Item"
    )


def _stream(source: str, rows: list[Row], name: str = "facts") -> Stream:
    if not rows:
        raise HoldfastError(f"{source}: holds no facts; give at least one question and its answer")
    return stream_of(source, rows, name, None)
