"""Read and write a user's own facts as JSONL: one JSON object per line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from holdfast.core.errors import HoldfastError, reason_of
from holdfast.core.files import write_text_atomically
from holdfast.streams.item import quoted
from holdfast.streams.rows import (
    NAMED_AS_KEYS,
    Columns,
    reading,
    stream_of,
    values_of,
    without_null,
)
from holdfast.streams.stream import Stream

EXAMPLE = '{"question": "...", "answer": "..."}'


def read_jsonl(
    path: str | Path, items_per_task: int | None = None, columns: Columns = NAMED_AS_KEYS
) -> Stream:
    """Read lines ``{"question", "answer", "aliases"?, "task"?, "id"?, "details"?}`` as a stream.

    Other keys are kept in the details. ``prompt`` and ``completion``, ``instruction`` or ``input``
    and ``output``, or the ``messages`` of a chat may replace ``question`` and ``answer``.

    ``task`` is text or a whole number (``1`` and ``"1"`` are one task), given in every line or in
    none. Tasks come in the order of their first line. Without ``task``, every ``items_per_task``
    lines make a task, named by its number; without ``items_per_task``, the file is one task. Blank
    lines are skipped. The stream is named after the file.

    Raises HoldfastError naming the file and, if one is wrong, the line.
    """
    path = Path(path)
    with reading(path, "a .jsonl file"):
        content = path.read_bytes()
    records = lines_of(content)
    return stream_of(str(path), records, json_object, path.stem, items_per_task, columns)


def write_jsonl(stream: Stream, path: str | Path) -> None:
    """Write a stream atomically, so that :func:`read_jsonl` returns equal tasks.

    The stream's name, ``exact_case`` and ``about`` are not written. Raises HoldfastError when the
    path cannot be written.
    """
    lines = [
        json.dumps(values_of(task, item), ensure_ascii=False)
        for task in stream.tasks
        for item in task.items
    ]
    write_text_atomically(Path(path), "".join(f"{line}\n" for line in lines), parents=True)


def lines_of(content: bytes) -> list[tuple[str, bytes]]:
    """The non-blank lines of a file, each with its place (``line 7``)."""
    # Only the line feed ends a line: text may hold Unicode's own line separators.
    lines = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    return [(f"line {n}", raw) for n, raw in enumerate(lines, start=1) if raw.strip()]


def json_object(raw: bytes) -> dict[str, Any]:
    """Parse a line as a JSON object. Raises HoldfastError, without the place, if it is none."""
    try:
        values = json.loads(raw.decode("utf-8"), object_pairs_hook=_without_repeats)
    except UnicodeDecodeError:
        raise HoldfastError("is no UTF-8 text; save the file as UTF-8") from None
    except (ValueError, RecursionError) as error:
        reason = reason_of(error)
        raise HoldfastError(f"is no JSON ({reason}); write one {EXAMPLE} a line") from None
    if not isinstance(values, dict):
        raise HoldfastError(f"is no JSON object; write one {EXAMPLE} a line")
    return without_null(values)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a key that occurs twice in one object; json would silently keep the last."""
    values = dict(pairs)
    if len(values) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise HoldfastError(f"key {quoted(twice)} stands twice; keep one")
    return values
