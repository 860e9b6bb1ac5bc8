"""Facts as Python has them: pairs, mappings, items, a pandas DataFrame, a loaded dataset."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from holdfast.core.errors import HoldfastError
from holdfast.streams.columns import Columns
from holdfast.streams.hf_dataset import one_split, rows_of_dataset
from holdfast.streams.item import Item
from holdfast.streams.rows import read_rows, stream_of
from holdfast.streams.stream import Stream
from holdfast.streams.tables import records_of

_GIVE = (
    "give a DataFrame, or a list of facts: [(question, answer), ...] or "
    '[{"question": ..., "answer": ...}, ...]'
)

Fact: TypeAlias = Item | tuple[str, str] | Mapping[str, Any]
# Any: a pandas DataFrame or a dataset, of libraries that are not imported here
Facts: TypeAlias = Iterable[Fact] | Any


def facts_of_python(
    facts: Facts, items_per_task: int | None = None, columns: Columns | None = None
) -> Stream:
    """Facts as a stream; without tasks of their own they are one task, or tasks of a size.

    facts: items, pairs (question, answer), or mappings with the keys of a JSON line; or a pandas
    DataFrame; or what ``datasets`` has loaded, of whose splits ``train`` is taken, or the only one.
    Raises HoldfastError naming the number of each fact that is wrong.
    """
    if isinstance(facts, Mapping):
        facts = _of_mapping(facts)
    if _is_dataset(facts):
        return rows_of_dataset(facts, "dataset", "facts", items_per_task, columns)
    if hasattr(facts, "itertuples"):
        rows = read_rows("table", *records_of(facts, columns), columns)
    elif isinstance(facts, Iterable):
        numbered = ((f"number {number}", fact) for number, fact in enumerate(facts, start=1))
        rows = read_rows("fact", numbered, _values, columns, skip_blank=False)
    else:
        raise HoldfastError(f"{facts!r:.60} holds no facts; {_GIVE}")
    if not rows:
        raise HoldfastError("facts: holds no facts; give at least one question and its answer")
    return stream_of("fact", rows, "facts", items_per_task)


def _of_mapping(facts: Mapping[str, Any]) -> Any:
    """The one table of a mapping from splits to tables; any other mapping is refused."""
    if facts and all(map(_is_dataset, facts.values())):
        return one_split(facts, "dataset")
    raise HoldfastError(f"one mapping, with {', '.join(map(repr, facts)):.60}, is given; {_GIVE}")


def _is_dataset(value: object) -> bool:
    """Whether the library ``datasets``, which is not imported here, has made it."""
    return type(value).__module__.partition(".")[0] == "datasets" and hasattr(value, "features")


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
