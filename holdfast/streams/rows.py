"""One row an item: what lines of JSON and Hugging Face datasets have in common."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from holdfast.core.errors import HoldfastError
from holdfast.streams.item import Item, clean, quoted
from holdfast.streams.registry import QuestionRegistry
from holdfast.streams.stream import Stream, Task

Record = TypeVar("Record")
KEYS = ("question", "answer", "aliases", "task", "id", "details")


@dataclass(frozen=True)
class Row:
    """An item, where it stands (``line 7``), and the task that it names, if it names one."""

    place: str
    item: Item
    task: str | None


def row_of(place: str, values: Mapping[str, Any]) -> Row:
    """The row that values of :data:`KEYS` make; HoldfastError, without the place, when wrong."""
    for key in values:
        if key not in KEYS:
            nearest = difflib.get_close_matches(key, KEYS, n=1)
            hint = f'did you mean "{nearest[0]}"?' if nearest else f"known are {', '.join(KEYS)}"
            raise HoldfastError(f"unknown key {quoted(key)}; {hint}")
    for key in ("question", "answer"):
        if key not in values:
            raise HoldfastError(f'"{key}" is missing; every item needs a question and an answer')
    details = values.get("details", {})
    if not isinstance(details, dict):
        raise HoldfastError(f'"details" is {details!r:.60}; write an object, or leave it out')
    item = Item(
        question=values["question"],
        answer=values["answer"],
        aliases=values.get("aliases", ()),
        id=_label("id", values),
        details=details,
    )
    return Row(place, item, _label("task", values))


def read_rows(
    source: str, records: Iterable[tuple[str, Record]], parse: Callable[[Record], Mapping[str, Any]]
) -> list[Row]:
    """Read records, each with its place, as rows in which no question stands twice.

    parse: gives the values of :data:`KEYS` of a record. Raises HoldfastError naming the source
    and the place.
    """
    rows = []
    questions = QuestionRegistry()
    for place, record in records:
        try:
            row = row_of(place, parse(record))
        except HoldfastError as error:
            raise HoldfastError(f"{source} {place}: {error}") from None
        questions.add(row.item, f"{source} {place}")
        rows.append(row)
    return rows


def values_of(task: Task, item: Item) -> dict[str, Any]:
    """What :func:`row_of` reads; what an item does not have is left out."""
    values: dict[str, Any] = {"task": task.name, "question": item.question, "answer": item.answer}
    if item.aliases:
        values["aliases"] = list(item.aliases)
    if item.id is not None:
        values["id"] = item.id
    if item.details:
        values["details"] = dict(item.details)
    return values


def stream_of(source: str, rows: Sequence[Row], name: str, items_per_task: int | None) -> Stream:
    """Group rows, at least one, into tasks; source: what an error names.

    Rows name their task, all of them or none. Tasks come in the order of their first row. Without
    names, every ``items_per_task`` rows make a task, named by its number; without that as well,
    all rows are one.
    """
    named = rows[0].task is not None
    for row in rows:
        if (row.task is not None) != named:
            with_task, without = (rows[0], row) if named else (row, rows[0])
            raise HoldfastError(
                f'{source} {row.place}: {with_task.place} names a "task" and {without.place} does '
                "not; give every one a task, or none"
            )
    if items_per_task is not None and items_per_task < 1:
        raise HoldfastError(f"{source}: items_per_task = {items_per_task}; use 1 or more")
    if named and items_per_task is not None:
        raise HoldfastError(
            f'{source}: its items name their "task", so items_per_task = {items_per_task} has no '
            "meaning; leave it out"
        )
    size = items_per_task or len(rows)
    tasks: dict[str, list[Item]] = {}
    for index, row in enumerate(rows):
        tasks.setdefault(row.task or str(index // size + 1), []).append(row.item)
    return Stream(tuple(Task(name, tuple(items)) for name, items in tasks.items()), name)


def _label(key: str, values: Mapping[str, Any]) -> str | None:
    """A name given as text or as a whole number; None when absent."""
    if key not in values:
        return None
    value = values[key]
    whole_number = isinstance(value, int) and not isinstance(value, bool)
    if not whole_number and not isinstance(value, str):
        raise HoldfastError(f'"{key}" is {value!r:.60}; give a text or a whole number, or nothing')
    return clean(key, str(value))
