"""Facts, wherever they come from, as a stream; and the file in which a memory keeps its own."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from holdfast.core.errors import HoldfastError
from holdfast.streams import Item, Stream, Task, load_stream
from holdfast.streams.rows import Row, read_rows, row_of, stream_of

Fact: TypeAlias = Item | tuple[str, str] | Mapping[str, Any]
Facts: TypeAlias = str | Path | Stream | Iterable[Fact]

STANDARD_INPUT = "-"
_DELIMITERS = {".csv": ",", ".tsv": "\t"}
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

    Unlike a stream, a memory may ask a question twice: the later answer corrects the former.
    Raises HoldfastError naming the line when the file is damaged.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise HoldfastError(f"{path}: cannot be read ({error.strerror})") from error
    batches: dict[str, list[Item]] = {}
    for place, raw in _lines(content):
        try:
            row = row_of(place, _parsed(raw))
            if row.task is None:
                raise HoldfastError('"task" is missing; each fact of a memory names its batch')
        except HoldfastError as error:
            raise HoldfastError(f"{path} {place}: {error}") from None
        batches.setdefault(row.task, []).append(row.item)
    return tuple(Task(name, tuple(items)) for name, items in batches.items())


def _read(source: str | Path) -> Stream:
    if str(source) == STANDARD_INPUT:
        place = "standard input"
        return _stream(place, read_rows(place, _lines(sys.stdin.buffer.read()), _parsed))
    path = Path(source)
    delimiter = _DELIMITERS.get(path.suffix.lower())
    return load_stream(source) if delimiter is None else _read_table(path, delimiter)


def _read_table(path: Path, delimiter: str) -> Stream:
    """A table with a header; empty cells are what a line of JSON would leave out."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, delimiter=delimiter, strict=True)
            header = [name.strip() for name in reader.fieldnames or ()]
            if not set(header) >= _NEEDED:
                raise HoldfastError(
                    f'{path}: its first line must name the columns "question" and "answer", '
                    "separated as in the rest of the file"
                )
            reader.fieldnames = header
            records = [(f"line {reader.line_num}", row) for row in reader]
    except FileNotFoundError:
        raise HoldfastError(f"{path}: no such file; give the path of a table") from None
    except UnicodeDecodeError:
        raise HoldfastError(f"{path}: is no UTF-8 text; save the file as UTF-8") from None
    except csv.Error as error:
        raise HoldfastError(f"{path}: is no table ({error}); check its quotes") from None
    except OSError as error:
        raise HoldfastError(f"{path}: cannot be read ({error.strerror})") from error
    return _stream(str(path), read_rows(str(path), records, _cells), path.stem)


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


def _lines(content: bytes) -> list[tuple[str, bytes]]:
    lines = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    return [(f"line {number}", raw) for number, raw in enumerate(lines, start=1) if raw.strip()]


def _parsed(raw: bytes) -> dict[str, Any]:
    try:
        values = json.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise HoldfastError(f"is no JSON in UTF-8 ({reason}); write one object a line") from None
    if not isinstance(values, dict):
        raise HoldfastError("is no JSON object; write one object a line")
    return values
