"""Readers of the sources' file formats: JSONL, one JSON value, a table."""

from __future__ import annotations

import contextlib
import csv
import functools
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from holdfast.builders.real_qa.sources.source import PublishedRecord
from holdfast.core.errors import HoldfastError
from holdfast.core.own import regular


def json_lines(path: Path) -> Iterator[PublishedRecord]:
    """One JSON value a line; blank lines are skipped."""
    # Only the line feed ends a line: text may hold Unicode's own line separators.
    for number, line in enumerate(text_of(path).split("\n"), start=1):
        if line.strip():
            yield in_file(path, "line", number, parse(f"{shown(path)} line {number}", line))


def json_array(path: Path) -> Iterator[PublishedRecord]:
    """The elements of one JSON array."""
    values = parse(shown(path), text_of(path))
    if not isinstance(values, list):
        raise HoldfastError(f"{shown(path)}: is no JSON array")
    for number, value in enumerate(values, start=1):
        yield in_file(path, "record", number, value)


def table(path: Path, columns: tuple[str, ...] | None = None) -> Iterator[PublishedRecord]:
    """The rows of a tab-separated file with CSV quoting, as objects.

    columns: their names when the file has no header line.
    """
    reader = csv.reader(io.StringIO(text_of(path), newline=""), delimiter="\t", strict=True)
    header = columns
    while True:
        # A quoted cell may span several lines; errors name the first.
        number = reader.line_num + 1
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise HoldfastError(f"{shown(path)} line {number}: is no table row ({error})") from None
        if cells is None:
            return
        if not cells:
            continue
        if header is None:
            header = tuple(cells)
        elif len(cells) == len(header):
            yield in_file(path, "line", number, dict(zip(header, cells, strict=True)))
        else:
            raise HoldfastError(
                f"{shown(path)} line {number}: has {len(cells)} cells, not {len(header)}"
            )


def in_file(
    path: Path, unit: Literal["line", "record"], number: int, values: object, inside: str = ""
) -> PublishedRecord:
    """A record of a file, counted from 1. inside: the file's path when ``path`` is an archive."""
    where, name, stem = _names(path, inside)
    return PublishedRecord(
        f"{where} {unit} {number}", f"{name} {unit} {number}", f"{stem}:{number}", values
    )


@functools.lru_cache(maxsize=1)  # called for every record of a file
def _names(path: Path, inside: str) -> tuple[str, str, str]:
    name = Path(path.name, inside)
    return shown(path / inside), shown(name), shown(Path(name.stem))


def text_of(path: Path) -> str:
    """A whole file as text; HoldfastError when it cannot be read, is empty, or is no UTF-8."""
    try:
        content = regular(path).read_bytes()
    except FileNotFoundError:
        raise HoldfastError(f"{shown(path)}: no such file") from None
    except OSError as error:
        raise HoldfastError(f"{shown(path)}: cannot be read ({error.strerror})") from None
    except ValueError as error:  # a null character in the name
        raise HoldfastError(f"{shown(path)}: cannot be read ({error})") from None
    return decoded(shown(path), content)


def decoded(where: str, content: bytes) -> str:
    """Decode UTF-8; HoldfastError naming the first undecodable line, or when the text is empty."""
    content = content.removeprefix(b"\xef\xbb\xbf")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise HoldfastError(f"{where} line {line}: is no UTF-8 text") from None
    if not text.strip():
        raise HoldfastError(f"{where}: is empty")
    return text


def parse(where: str, text: str) -> Any:
    """JSON text as a value; HoldfastError when it is none."""
    try:
        return json.loads(text)
    except RecursionError:
        raise HoldfastError(f"{where}: is nested too deeply") from None
    except ValueError as error:
        raise HoldfastError(f"{where}: is no JSON ({error})") from None


@contextlib.contextmanager
def within(where: str) -> Iterator[None]:
    """Prefix every HoldfastError with ``where``."""
    try:
        yield
    except HoldfastError as error:
        raise HoldfastError(f"{where}: {error}") from None


def shown(path: Path) -> str:
    """A path on one printable line."""
    text = str(path)
    if text.isprintable():
        return text
    return "".join(symbol if symbol.isprintable() else "?" for symbol in text)
