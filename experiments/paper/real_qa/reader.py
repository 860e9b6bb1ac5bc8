"""The rows of published files: JSON documents, JSON lines, tables, and archives of documents."""

from __future__ import annotations

import csv
import io
import json
import tarfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from holdfast.core.errors import HoldfastError
from holdfast.core.file_checks import regular
from holdfast.core.files import read_bytes

Unpack: TypeAlias = Callable[[Any], list[Any]]
ARCHIVES = (".tgz", ".tar.gz", ".tar")


@dataclass(frozen=True)
class Row:
    """One record. place: for messages, such as ``dev.json line 3``; key: replaces a missing id."""

    place: str
    key: str
    values: Any


def file_rows(
    path: Path, unpack: Unpack | None, in_archive: Callable[[str], bool]
) -> Iterator[Row]:
    """The rows of a published file.

    unpack: gets the records out of a JSON document; None for files with a JSON value per line.
    in_archive: which members of an archive to read.
    Raises HoldfastError, naming the file and where possible the line, if it is unreadable or holds
    no record.
    """
    empty = True
    for name, content in _documents(path, in_archive):
        for row in _rows(name, content, unpack):
            empty = False
            yield row
    if empty:
        raise HoldfastError(f"{path}: holds no records")


def _documents(path: Path, in_archive: Callable[[str], bool]) -> Iterator[tuple[Path, bytes]]:
    """The name and content of a file, or of the wanted members of an archive."""
    if not path.name.endswith(ARCHIVES):
        yield path, read_bytes(path)
        return
    try:
        with tarfile.open(regular(path)) as archive:
            for entry in archive:
                name = entry.name.lstrip("/")
                file = archive.extractfile(entry) if in_archive(name) else None
                if file is not None:
                    yield path / name, file.read()
    # A damaged header may give any size, so reading a member fails in many ways.
    except (tarfile.TarError, zlib.error, OSError, EOFError, ValueError, MemoryError) as error:
        reason = " ".join(str(error).split())
        raise HoldfastError(f"{path}: is no whole archive ({reason})") from None


def _rows(path: Path, content: bytes, unpack: Unpack | None) -> Iterator[Row]:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise HoldfastError(f"{path} line {line}: is no UTF-8 text") from None
    if path.suffix in (".tsv", ".txt"):
        unit, numbered = "line", _table(path, text)
    elif unpack is None:
        unit, numbered = "line", _lines(path, text)
    else:
        unit, numbered = "record", _document(path, text, unpack)
    for number, values in numbered:
        yield Row(f"{path} {unit} {number}", f"{path.stem}:{number}", values)


def _document(path: Path, text: str, unpack: Unpack) -> Iterator[tuple[int, Any]]:
    document = _parsed(str(path), text)
    try:
        records = unpack(document)
    except (KeyError, TypeError) as error:
        raise HoldfastError(f"{path}: is of another form ({error})") from None
    if not isinstance(records, list):
        raise HoldfastError(f"{path}: holds no list of records")
    yield from enumerate(records, start=1)


def _lines(path: Path, text: str) -> Iterator[tuple[int, Any]]:
    # Only the line feed ends a line: text may hold Unicode's own line separators.
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield number, _parsed(f"{path} line {number}", line)


def _parsed(where: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise HoldfastError(f"{where}: is no JSON ({error})") from None


def _table(path: Path, text: str) -> Iterator[tuple[int, dict[str, str]]]:
    """The rows of a tab-separated table; one in a .txt file has no header (DPR's lists)."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter="\t", strict=True)
    header = ["question", "answers"] if path.suffix == ".txt" else next(reader, [])
    number = reader.line_num + 1
    try:
        for cells in reader:
            if cells and len(cells) != len(header):
                raise csv.Error(f"{len(cells)} cells, not {len(header)}")
            if cells:
                yield number, dict(zip(header, cells, strict=True))
            number = reader.line_num + 1  # a quoted cell may span several lines
    except csv.Error as error:
        raise HoldfastError(f"{path} line {number}: is no row of the table ({error})") from None
