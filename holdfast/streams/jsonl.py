"""A user's own facts: one JSON object a line."""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.core.files import write_text_atomically
from holdfast.streams.item import Item, clean, quoted
from holdfast.streams.registry import QuestionRegistry
from holdfast.streams.stream import Stream, Task

KEYS = ("question", "answer", "aliases", "task", "id")
EXAMPLE = '{"question": "...", "answer": "..."}'


@dataclass(frozen=True)
class _Line:
    number: int
    item: Item
    task: str | None


def read_jsonl(path: str | Path, items_per_task: int | None = None) -> Stream:
    """Read lines ``{"question", "answer", "aliases"?, "task"?, "id"?}`` as a stream.

    ``task`` is text or a whole number (``1`` and ``"1"`` are one task) and stands in every line
    or in none. Tasks come in the order of their first line, whatever their names; their lines may
    be interleaved. Without ``task``, every ``items_per_task`` lines make a task, named by its
    number, the last one perhaps shorter; without ``items_per_task``, the file is one task.
    Blank lines are skipped. The stream takes the file's name.

    Raises HoldfastError naming the file and, where there is one, the line.
    """
    path = Path(path)
    lines = _lines(path)
    named = lines[0].task is not None
    for line in lines:
        if (line.task is not None) != named:
            with_task, without = (lines[0], line) if named else (line, lines[0])
            raise HoldfastError(
                f'{path} line {line.number}: line {with_task.number} names a "task" and line '
                f"{without.number} does not; give every line a task, or none"
            )
    if items_per_task is not None and items_per_task < 1:
        raise HoldfastError(f"{path}: items_per_task = {items_per_task}; use 1 or more")
    if named and items_per_task is not None:
        raise HoldfastError(
            f'{path}: its lines name their "task", so items_per_task = {items_per_task} has no '
            "meaning; leave it out"
        )
    size = items_per_task or len(lines)
    tasks: dict[str, list[Item]] = {}
    for index, line in enumerate(lines):
        tasks.setdefault(line.task or str(index // size + 1), []).append(line.item)
    return Stream(tuple(Task(name, tuple(items)) for name, items in tasks.items()), path.stem)


def write_jsonl(stream: Stream, path: str | Path) -> None:
    """Write a stream so that :func:`read_jsonl` gives back equal tasks; whole or not at all.

    The stream's name and ``exact_case`` are not written. Raises HoldfastError when the place
    cannot be written.
    """
    lines = [
        json.dumps(_object(task, item), ensure_ascii=False)
        for task in stream.tasks
        for item in task.items
    ]
    write_text_atomically(Path(path), "".join(f"{line}\n" for line in lines))


def _object(task: Task, item: Item) -> dict[str, Any]:
    values: dict[str, Any] = {"task": task.name, "question": item.question, "answer": item.answer}
    if item.aliases:
        values["aliases"] = list(item.aliases)
    if item.id is not None:
        values["id"] = item.id
    return values


def _lines(path: Path) -> list[_Line]:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise HoldfastError(f"{path}: no such file; give the path of a .jsonl file") from None
    except OSError as error:
        raise HoldfastError(f"{path}: cannot be read ({error.strerror})") from error
    lines = []
    registry = QuestionRegistry()
    # Only the line feed ends a line: text may hold Unicode's own line separators.
    for number, raw in enumerate(content.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if not raw.strip():
            continue
        try:
            item, task = _parse(raw)
        except HoldfastError as error:
            raise HoldfastError(f"{path} line {number}: {error}") from None
        registry.add(item, f"{path} line {number}")
        lines.append(_Line(number, item, task))
    if not lines:
        raise HoldfastError(f"{path}: is empty; write one {EXAMPLE} a line")
    return lines


def _parse(raw: bytes) -> tuple[Item, str | None]:
    try:
        values = json.loads(raw.decode("utf-8"), object_pairs_hook=_without_repeats)
    except UnicodeDecodeError:
        raise HoldfastError("is no UTF-8 text; save the file as UTF-8") from None
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise HoldfastError(f"is no JSON ({reason}); write one {EXAMPLE} a line") from None
    if not isinstance(values, dict):
        raise HoldfastError(f"is no JSON object; write one {EXAMPLE} a line")
    for key in values:
        if key not in KEYS:
            nearest = difflib.get_close_matches(key, KEYS, n=1)
            hint = f'did you mean "{nearest[0]}"?' if nearest else f"known are {', '.join(KEYS)}"
            raise HoldfastError(f"unknown key {quoted(key)}; {hint}")
    for key in ("question", "answer"):
        if key not in values:
            raise HoldfastError(f'"{key}" is missing; every item needs a question and an answer')
    item = Item(
        question=values["question"],
        answer=values["answer"],
        aliases=values.get("aliases", ()),
        id=_label("id", values),
    )
    return item, _label("task", values)


def _label(key: str, values: dict[str, Any]) -> str | None:
    """A name given as text or as a whole number; None when absent."""
    if key not in values:
        return None
    value = values[key]
    whole_number = isinstance(value, int) and not isinstance(value, bool)
    if not whole_number and not isinstance(value, str):
        raise HoldfastError(f'"{key}" is {value!r:.60}; give a text or a whole number, or nothing')
    return clean(key, str(value))


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a key that stands twice in one object; JSON readers keep the last one silently."""
    values = dict(pairs)
    if len(values) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise HoldfastError(f"key {quoted(twice)} stands twice; keep one")
    return values
