"""Load any stream: by a built-in's name, from a path, or from Python objects."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import Field, field_validator

from holdfast.core.config import Config, build
from holdfast.core.errors import HoldfastError, did_you_mean
from holdfast.core.plugins import STREAMS, Added
from holdfast.streams.hf_dataset import (
    is_dataset_directory,
    one_split,
    read_dataset,
    stream_of_dataset,
)
from holdfast.streams.item import Item, quoted
from holdfast.streams.released import is_released, read_released
from holdfast.streams.rows import NAMED_AS_KEYS, Columns, read_jsonl, stream_of
from holdfast.streams.stream import Stream, case_twins, reorder
from holdfast.streams.symbol_qa import symbol_qa
from holdfast.streams.tables import TABLES, read_table, records_of

JSONL_IN_DIRECTORY = "stream.jsonl"
DATASET_IN_DIRECTORY = "dataset"
# The settings for the size and the seed of a generated stream.
SIZE_AND_SEED = ("tasks", "items_per_task", "seed")
logger = logging.getLogger(__name__)

_GIVE = (
    "give a DataFrame, or a list of facts: [(question, answer), ...] or "
    '[{"question": ..., "answer": ...}, ...]'
)

Fact: TypeAlias = Item | tuple[str, str] | Mapping[str, Any]
# Any: a pandas DataFrame or a dataset, whose libraries are not imported here
Facts: TypeAlias = Iterable[Fact] | Any


class StreamConfig(Config):
    """Which stream, and how much of it.

    name: a built-in (``symbol_qa``), a source that an installed package adds, or the path of a
    ``.jsonl`` file, of a table, of a directory in the published layout, or of a saved Hugging Face
    dataset; a whole number, as YAML reads the name ``2024``, counts as text.
    tasks: how many tasks to take, from the first; None takes all (100 of Symbol-QA).
    items_per_task: items in a task of Symbol-QA (None: 100), or of a file whose lines name no task
    (None: the file is one task).
    seed: for a generated stream; a stored stream ignores it.
    order_seed: permutes the tasks of the whole stream, before the first ``tasks`` are taken; None
    keeps their stored order.
    """

    name: str = "symbol_qa"
    tasks: int | None = Field(default=None, gt=0)
    items_per_task: int | None = Field(default=None, gt=0)
    seed: int = Field(default=42, ge=0, lt=2**63)
    order_seed: int | None = Field(default=None, ge=0, lt=2**63)

    @field_validator("name", mode="before")
    @classmethod
    def _text(cls, name: Any) -> Any:
        return str(name) if isinstance(name, int) and not isinstance(name, bool) else name


def load_stream(
    source: StreamConfig | Stream | str | Path | Facts = "symbol_qa",
    *,
    tasks: int | None = None,
    items_per_task: int | None = None,
    seed: int | None = None,
    order_seed: int | None = None,
    question_column: str | None = None,
    answer_column: str | None = None,
) -> Stream:
    """Load or generate a stream: ``load_stream("facts.jsonl", items_per_task=20)``.

    source: a built-in's name, a path, or a configuration, whose values the keywords override; a
    stream, from which ``order_seed`` and ``tasks`` select; or Python objects: a pandas DataFrame,
    what ``datasets`` has loaded, or pairs (question, answer), mappings or items.
    question_column, answer_column: the columns or keys that hold questions and answers; the other
    keywords are those of :class:`StreamConfig`. Symbol-QA is permuted over its full 100 tasks (or
    over ``tasks``, if that is more), so shorter streams stay prefixes.

    Raises HoldfastError for a value out of range, an unknown name, a file that is missing or
    wrong, or more tasks than there are.
    """
    given = {
        "name": str(source) if isinstance(source, (str, Path)) else None,
        "tasks": tasks,
        "items_per_task": items_per_task,
        "seed": seed,
        "order_seed": order_seed,
    }
    values = source.model_dump() if isinstance(source, StreamConfig) else {}
    values |= {key: value for key, value in given.items() if value is not None}
    config = build(StreamConfig, values, source="stream")
    texts = [None if name is None else str(name) for name in (question_column, answer_column)]
    columns = Columns(question=texts[0], answer=texts[1])
    if isinstance(source, Stream):
        stream = source
    elif isinstance(source, (str, Path, StreamConfig)):
        stream = _whole(config, columns)
    else:
        stream = facts_of_python(source, config.items_per_task, columns)
    whole = reorder(stream, config.order_seed)
    return whole if config.tasks is None else whole.first(config.tasks)


def _whole_symbol_qa(config: StreamConfig) -> Stream:
    return symbol_qa(max(config.tasks or 100, 100), config.items_per_task or 100, config.seed)


# Each returns the whole stream, unpermuted; load_stream permutes and truncates it. Installed
# packages add others through entry points of the group ``holdfast.streams``.
_BUILT_IN: dict[str, Callable[[StreamConfig], Stream]] = {"symbol_qa": _whole_symbol_qa}


def is_generated(name: object) -> bool:
    """Whether ``name`` is a generated stream, built in or plugged in; None: the default stream."""
    name = name or StreamConfig().name
    return isinstance(name, str) and name in _sources()


def _sources() -> Mapping[str, Callable[[StreamConfig], Stream]]:
    return Added(_BUILT_IN, STREAMS)


def _whole(config: StreamConfig, columns: Columns) -> Stream:
    sources = _sources()
    if config.name in sources:
        stream = sources[config.name](config)
        if not isinstance(stream, Stream):
            raise HoldfastError(
                f"stream {config.name}: its plug-in gives a {type(stream).__name__}; it must give "
                "a Stream"
            )
        return stream
    # Path.expanduser would raise for a user without a home directory.
    return read_stream(Path(os.path.expanduser(config.name)), config.items_per_task, columns)


def read_stream(
    path: Path, items_per_task: int | None = None, columns: Columns = NAMED_AS_KEYS
) -> Stream:
    """Read a stored stream.

    path: a ``.jsonl``, ``.json``, ``.csv``, ``.tsv``, ``.parquet`` or ``.xlsx`` file; a directory
    in the published layout; one saved by ``datasets``; or one that holds a ``stream.jsonl`` or a
    ``dataset`` saved by ``datasets``. items_per_task: if rows name no task.
    Raises HoldfastError when it is none of these, cannot be read, or has invalid content.
    """
    try:
        stream = _stored(path, items_per_task, columns)
    # Path.is_file itself raises for a name that is too long or a folder without permission.
    except OSError as error:
        raise HoldfastError(
            f"stream {quoted(path)} cannot be read ({error.strerror or error}); give the path of a "
            ".jsonl file or of a directory that may be read"
        ) from error
    twins = case_twins(item for task in stream.tasks for item in task.items)
    if twins and not stream.exact_case:
        such_as = " and ".join(quoted(item.question) for item in twins[0])
        message = "%s: %d questions differ from another one in case alone, such as %s"
        logger.warning(message, path, len(twins), such_as)
    return stream


def is_stored_stream(directory: Path) -> bool:
    """Whether a directory holds a stream."""
    is_jsonl = (directory / JSONL_IN_DIRECTORY).is_file()
    datasets = (directory, directory / DATASET_IN_DIRECTORY)
    return is_jsonl or is_released(directory) or any(map(is_dataset_directory, datasets))


def _stored(path: Path, items_per_task: int | None, columns: Columns) -> Stream:
    if path.suffix.lower() == ".jsonl":
        return read_jsonl(path, items_per_task, columns)
    if path.suffix.lower() in TABLES and not path.is_dir():
        return read_table(path, items_per_task, columns)
    if is_released(path):
        if items_per_task is not None:
            raise HoldfastError(
                f"{path}: has its own tasks, so items_per_task = {items_per_task} has no meaning; "
                "leave it out"
            )
        return read_released(path)
    if is_dataset_directory(path):
        return read_dataset(path, items_per_task, columns)
    jsonl, dataset = path / JSONL_IN_DIRECTORY, path / DATASET_IN_DIRECTORY
    if jsonl.is_file() or is_dataset_directory(dataset):
        inside = jsonl if jsonl.is_file() else dataset
        return replace(_stored(inside, items_per_task, columns), name=path.resolve().name)
    if path.exists():
        raise HoldfastError(
            f"{path}: is no stream; a stream is a .jsonl file or a table, a directory with "
            "manifest.json and task_0, task_1, ..., or a saved Hugging Face dataset"
        )
    raise HoldfastError(
        f"unknown stream {quoted(path)}, and no file or directory; "
        f"{did_you_mean(str(path), _sources())}"
    )


def facts_of_python(
    facts: Facts, items_per_task: int | None = None, columns: Columns = NAMED_AS_KEYS
) -> Stream:
    """Make a stream of Python objects; if they name no task, they are one, or tasks of a size.

    facts: items, pairs (question, answer), or mappings with the keys of a JSON line; a pandas
    DataFrame; or what ``datasets`` has loaded: of several splits ``train``, or the only one.
    Raises HoldfastError naming the number of each fact that is wrong.
    """
    if isinstance(facts, Mapping):
        if not facts or not all(map(_is_dataset, facts.values())):
            keys = ", ".join(map(repr, facts))
            raise HoldfastError(f"one mapping, with {keys:.60}, is given; {_GIVE}")
        facts = one_split(facts, "dataset")
    if _is_dataset(facts):
        return stream_of_dataset(facts, "dataset", "facts", items_per_task, columns)
    if hasattr(facts, "itertuples"):
        records, parse = records_of(facts, columns)
        return stream_of("table", records, parse, "facts", items_per_task, columns)
    if not isinstance(facts, Iterable):
        raise HoldfastError(f"{facts!r:.60} holds no facts; {_GIVE}")
    numbered = ((f"number {number}", fact) for number, fact in enumerate(facts, start=1))
    return stream_of("fact", numbered, _values, "facts", items_per_task, columns, skip_blank=False)


def _is_dataset(value: object) -> bool:
    """Whether ``value`` is a dataset of the library ``datasets``, which is not imported here."""
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
