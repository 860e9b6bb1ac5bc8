"""One way to every stream: by its name, or by the path of a file."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from pathlib import Path

from pydantic import Field

from holdfast.core.config import Config, build
from holdfast.core.errors import HoldfastError
from holdfast.streams.item import quoted
from holdfast.streams.jsonl import read_jsonl
from holdfast.streams.order import reorder
from holdfast.streams.stream import Stream
from holdfast.streams.symbol_qa import symbol_qa


class StreamConfig(Config):
    """Which stream, and how much of it.

    name: a built-in (``symbol_qa``) or the path of a ``.jsonl`` file.
    tasks: take the first so many; None takes all (100 of Symbol-QA).
    items_per_task: of Symbol-QA, None meaning 100; of a file whose lines name no task, None
    meaning that the file is one task.
    seed: of the generated streams; a file is what it is.
    order_seed: permutes the tasks of the whole stream, before the first ``tasks`` are taken; None
    keeps them as they stand.
    """

    name: str = "symbol_qa"
    tasks: int | None = Field(default=None, gt=0)
    items_per_task: int | None = Field(default=None, gt=0)
    seed: int = Field(default=42, ge=0)
    order_seed: int | None = Field(default=None, ge=0)


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


def _whole(config: StreamConfig) -> Stream:
    if config.name in _BUILT_IN:
        return _BUILT_IN[config.name](config)
    # Path.expanduser would raise for a home that does not exist.
    path = Path(os.path.expanduser(config.name))
    if path.suffix.lower() == ".jsonl":
        return read_jsonl(path, config.items_per_task)
    if path.exists():
        raise HoldfastError(f"{path}: is no .jsonl file; write one JSON object a line there")
    nearest = difflib.get_close_matches(config.name, _BUILT_IN, n=1)
    hint = f"did you mean {nearest[0]}? " if nearest else ""
    raise HoldfastError(
        f"unknown stream {quoted(config.name)}; {hint}there is {', '.join(_BUILT_IN)}, "
        "or give the path of a .jsonl file"
    )
