"""Facts as Python has them: pairs, mappings, items, a pandas DataFrame, a loaded dataset."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from holdfast.core.errors import HoldfastError
from holdfast.streams.columns import Columns
from holdfast.streams.item import Item
from holdfast.streams.rows import read_rows, stream_of
from holdfast.streams.stream import Stream
from holdfast.streams.tables import records_of

Fact: TypeAlias = Item | tuple[str, str] | Mapping[str, Any]
Facts: TypeAlias = Iterable[Fact] | Any  # Any: a pandas DataFrame, which is not imported here


def facts_of_python(
    facts: Facts, items_per_task: int | None = None, columns: Columns | None = None
) -> Stream:
    """Facts as a stream; without tasks of their own they are one task, or tasks of a size.

    facts: items, pairs (question, answer), or mappings with the keys of a JSON line, as rows of a
    ``datasets.Dataset`` are; or a pandas DataFrame.
    Raises HoldfastError naming the number of each fact that is wrong.
    """
    if hasattr(facts, "itertuples"):
        records = records_of(facts)
        rows = read_rows("table", records, dict, columns)
    else:
        numbered = ((f"number {number}", fact) for number, fact in enumerate(facts, start=1))
        rows = read_rows("fact", numbered, _values, columns)
    if not rows:
        raise HoldfastError("facts: holds no facts; give at least one question and its answer")
    return stream_of("fact", rows, "facts", items_per_task)


def _values(fact: object) -> Mapping[str, Any]:
    """A fact as a mapping with the keys of a JSON line."""
    if isinstance(fact, Mapping):
        return {key: value for key, value in fact.items() if value is not None}
    if isinstance(fact, Item):
        values = {"question": fact.question, "answer": fact.answer, "aliases": fact.aliases}
        return {**values, "details": fact.details, **({"id": fact.id} if fact.id else {})}
    if isinstance(fact, (tuple, list)) and len(fact) == 2:
        return {"question": fact[0], "answer": fact[1]}
    raise HoldfastError(
        f"{fact!r:.60} is no fact; give a pair (question, answer), a mapping or an Item"
    )
