"""One way to every stream: by its name, or by the path of a file."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from holdfast.core.config import Config, build
from holdfast.core.errors import HoldfastError
from holdfast.streams.hf_dataset import is_dataset, read_dataset
from holdfast.streams.item import quoted
from holdfast.streams.jsonl import read_jsonl
from holdfast.streams.order import reorder
from holdfast.streams.released import is_released, read_released
from holdfast.streams.stream import Stream
from holdfast.streams.symbol_qa import symbol_qa

JSONL_IN_DIRECTORY = "stream.jsonl"
DATASET_IN_DIRECTORY = "dataset"
# The settings that say how much of a generated stream is wanted, and which.
SIZE_AND_SEED = ("tasks", "items_per_task", "seed")


class StreamConfig(Config):
    """Which stream, and how much of it.

    name: a built-in (``symbol_qa``) or the path of a ``.jsonl`` file, of a directory in the
    published layout, or of a saved Hugging Face dataset; a whole number, as YAML reads the name
    ``2024``, counts as text.
    tasks: take the first so many; None takes all (100 of Symbol-QA).
    items_per_task: of Symbol-QA, None meaning 100; of a file whose lines name no task, None
    meaning that the file is one task.
    seed: of the generated streams; a stored one is what it is.
    order_seed: permutes the tasks of the whole stream, before the first ``tasks`` are taken; None
    keeps them as they stand.
    """

    name: str = "symbol_qa"
    tasks: int | None = Field(default=None, gt=0)
    items_per_task: int | None = Field(default=None, gt=0)
    seed: int = Field(default=42, ge=0)
    order_seed: int | None = Field(default=None, ge=0)

    @field_validator("name", mode="before")
    @classmethod
    def _text(cls, name: Any) -> Any:
        return str(name) if isinstance(name, int) and not isinstance(name, bool) else name


def load_stream(
    source: StreamConfig | str | Path = "symbol_qa",
    *,
    tasks: int | None = None,
    items_per_task: int | None = None,
    seed: int | None = None,
    order_seed: int | None = None,
) -> Stream:
    """Load or generate a stream: ``load_stream("facts.jsonl", items_per_task=20)``.

    source: a built-in's name, a path, or a configuration, whose values the keywords replace;
    the keywords are those of :class:`StreamConfig`. Symbol-QA is permuted over its full 100 tasks
    (or over ``tasks``, when that is more), so shorter streams stay prefixes.

    Raises HoldfastError for a value out of range, an unknown name, a file that is missing or
    wrong, or more tasks than there are.
    """
    given = {
        "tasks": tasks,
        "items_per_task": items_per_task,
        "seed": seed,
        "order_seed": order_seed,
    }
    base = source.model_dump() if isinstance(source, StreamConfig) else {"name": str(source)}
    values = base | {key: value for key, value in given.items() if value is not None}
    config = build(StreamConfig, values, source="stream")
    whole = reorder(_whole(config), config.order_seed)
    return whole if config.tasks is None else whole.first(config.tasks)


def _whole_symbol_qa(config: StreamConfig) -> Stream:
    published = 100
    return symbol_qa(
        tasks=max(config.tasks or published, published),
        items=config.items_per_task or published,
        seed=config.seed,
    )


# Each gives the whole stream in its stored order; permuting and cutting come after.
_BUILT_IN: dict[str, Callable[[StreamConfig], Stream]] = {"symbol_qa": _whole_symbol_qa}


def is_generated(name: object) -> bool:
    """Whether a name is a stream that is generated; None is the default's."""
    name = name or StreamConfig().name
    return isinstance(name, str) and name in _BUILT_IN


def _whole(config: StreamConfig) -> Stream:
    if config.name in _BUILT_IN:
        return _BUILT_IN[config.name](config)
    # Path.expanduser would raise for a home that does not exist.
    return read_stream(Path(os.path.expanduser(config.name)), config.items_per_task)


def read_stream(path: Path, items_per_task: int | None = None) -> Stream:
    """Read a stored stream, whatever its format.

    path: a ``.jsonl`` file; a directory in the published layout, written by ``datasets``, or with
    a ``stream.jsonl`` or a directory ``dataset`` so written in it. items_per_task: of rows that
    name no task.
    Raises HoldfastError when it is none of these, cannot be read, or is wrong in itself.
    """
    try:
        return _stored(path, items_per_task)
    # Even to ask whether a file is there fails where a name is too long or a folder is closed.
    except OSError as error:
        raise HoldfastError(
            f"stream {quoted(path)} cannot be read ({error.strerror or error}); give the path of a "
            ".jsonl file or of a directory that may be read"
        ) from error


def _stored(path: Path, items_per_task: int | None) -> Stream:
    if path.suffix.lower() == ".jsonl":
        return read_jsonl(path, items_per_task)
    if is_released(path):
        if items_per_task is not None:
            raise HoldfastError(
                f"{path}: has its own tasks, so items_per_task = {items_per_task} has no meaning; "
                "leave it out"
            )
        return read_released(path)
    if is_dataset(path):
        return read_dataset(path, items_per_task)
    name = path.resolve().name
    if (path / JSONL_IN_DIRECTORY).is_file():
        return replace(read_jsonl(path / JSONL_IN_DIRECTORY, items_per_task), name=name)
    if is_dataset(path / DATASET_IN_DIRECTORY):
        return replace(read_dataset(path / DATASET_IN_DIRECTORY, items_per_task), name=name)
    if path.exists():
        raise HoldfastError(
            f"{path}: is no stream; a stream is a .jsonl file, a directory with manifest.json and "
            "task_0, task_1, ..., or a saved Hugging Face dataset"
        )
    nearest = difflib.get_close_matches(str(path), _BUILT_IN, n=1)
    hint = f"did you mean {nearest[0]}? " if nearest else ""
    raise HoldfastError(
        f"unknown stream {quoted(path)}; {hint}there is {', '.join(_BUILT_IN)}, "
        "or give the path of a .jsonl file or of a directory"
    )
