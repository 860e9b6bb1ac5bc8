"""Rows, one per item: the code that JSONL files and Hugging Face datasets share."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from holdfast.core.errors import HoldfastError, did_you_mean
from holdfast.streams.columns import KEYS, Columns, as_values, known_names, warn_of_misspelled
from holdfast.streams.item import Item, clean, quoted
from holdfast.streams.registry import QuestionRegistry
from holdfast.streams.stream import Stream, Task

Record = TypeVar("Record")
_SHOWN = 20  # bad rows that are told one by one


@dataclass(frozen=True)
class Row:
    """An item, its place in the source (``line 7``), and its task's name if the row gives one."""

    place: str
    item: Item
    task: str | None


def row_of(place: str, values: Mapping[str, Any]) -> Row:
    """Build a row from values of :data:`KEYS`; HoldfastError, without the place, when invalid."""
    for key in values:
        if key not in KEYS:
            raise HoldfastError(f"unknown key {quoted(key)}; {did_you_mean(key, KEYS)}")
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
    source: str,
    records: Iterable[tuple[str, Record]],
    parse: Callable[[Record], Mapping[str, Any]],
    columns: Columns | None = None,
    *,
    corrections: bool = False,
    skip_blank: bool = True,
) -> list[Row]:
    """Parse (place, record) pairs into rows with unique questions.

    parse: makes a mapping of a record. Keys and values are taken as
    :func:`holdfast.streams.columns.as_values` has them, known keys whatever their capitals.
    corrections: a question need be unique in its task only, so that a later task may give it a new
    answer. skip_blank: records in which nothing is filled are no rows; spreadsheets have them.
    Raises HoldfastError naming the source, and every bad place with what is wrong there: a line for
    each of the first twenty, and how many more.
    """
    rows: list[Row] = []
    keys: set[str] = set()
    wrong: list[tuple[str, str]] = []  # place, reason
    count = 0
    columns = columns or Columns()
    questions: dict[str | None, QuestionRegistry] = defaultdict(QuestionRegistry)
    for place, record in records:
        count += 1
        try:
            given = parse(record)
            if skip_blank and not any(map(_is_filled, given.values())):
                count -= 1
                continue
            names = known_names(list(given), columns)
            keys.update(names)
            values = dict(zip(names, given.values(), strict=True))
            row = row_of(place, as_values(values, columns))
        except HoldfastError as error:
            wrong.append((place, str(error)))
            continue
        try:
            questions[row.task if corrections else None].add(row.item, f"{source} {place}")
        except HoldfastError as error:
            wrong.append((place, str(error).removeprefix(f"{source} {place}: ")))
        rows.append(row)
    if wrong:
        raise HoldfastError(_all_that_is_wrong(source, wrong, count))
    warn_of_misspelled(source, keys)
    return rows


def _is_filled(value: object) -> bool:
    """Whether a value is more than null, white space or an empty list or object."""
    return bool(value.strip()) if isinstance(value, str) else value not in (None, [], (), {})


def _all_that_is_wrong(source: str, wrong: Sequence[tuple[str, str]], count: int) -> str:
    place, reason = wrong[0]
    if len(wrong) == 1:
        return f"{source} {place}: {reason}"
    if len(wrong) == count and len({why for _, why in wrong}) == 1:
        return f"{source} {place} and all others, {count} in all: {reason}"
    lines = [f"{source}: {len(wrong)} of {count} entries are wrong; nothing was taken"]
    lines += [f"  {where}: {why}" for where, why in wrong[:_SHOWN]]
    if len(wrong) > _SHOWN:
        lines.append(f"  and {len(wrong) - _SHOWN} more")
    return "\n".join(lines)


def values_of(task: Task, item: Item) -> dict[str, Any]:
    """The values that :func:`row_of` reads, without the optional ones that the item lacks."""
    values: dict[str, Any] = {"task": task.name, "question": item.question, "answer": item.answer}
    if item.aliases:
        values["aliases"] = list(item.aliases)
    if item.id is not None:
        values["id"] = item.id
    if item.details:
        values["details"] = dict(item.details)
    return values


def stream_of(
    source: str,
    rows: Sequence[Row],
    name: str,
    items_per_task: int | None,
    *,
    corrections: bool = False,
) -> Stream:
    """Group one or more rows into tasks. source: the file's name for errors.

    corrections: a later task may repeat a question.

    Either all rows name their task or none does. Tasks come in the order of their first row.
    Without names, every ``items_per_task`` rows make a task, named by its number; when that is
    None too, all rows are one task.
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
    grouped = tuple(Task(name, tuple(items)) for name, items in tasks.items())
    return Stream(grouped, name, repeats=corrections)


def _label(key: str, values: Mapping[str, Any]) -> str | None:
    """A name given as text or as a whole number; None when absent."""
    if key not in values:
        return None
    value = values[key]
    whole_number = isinstance(value, int) and not isinstance(value, bool)
    if not whole_number and not isinstance(value, str):
        raise HoldfastError(f'"{key}" is {value!r:.60}; give a text or a whole number, or nothing')
    return clean(key, str(value))
