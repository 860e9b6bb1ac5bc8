"""Read and write streams as Hugging Face `datasets` saved to disk, one row per item."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.core.errors import HoldfastError, reason_of
from holdfast.core.files import atomic_directory
from holdfast.streams.rows import KEYS, NAMED_AS_KEYS, Columns, stream_of, values_of
from holdfast.streams.stream import Stream
from holdfast.streams.tables import named_cells

logger = logging.getLogger(__name__)


def is_dataset_directory(path: Path) -> bool:
    """Whether a directory was written by ``save_to_disk``."""
    return (path / "dataset_dict.json").is_file() or (path / "state.json").is_file()


def read_dataset(
    path: str | Path, items_per_task: int | None = None, columns: Columns = NAMED_AS_KEYS
) -> Stream:
    """Read a dataset that ``save_to_disk`` wrote; its columns are named like the JSONL keys.

    Cells are read as those of a table: ``details`` is JSON text, and other columns are kept in the
    details. Of several splits, ``train`` is read. Rows form tasks as in ``read_jsonl``.
    Raises HoldfastError naming the path and the row.
    """
    path = Path(path)
    datasets = library()
    try:
        table = datasets.load_from_disk(str(path))
    # IndexError: datasets takes the first table, and a dataset without rows has none
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        reason = reason_of(error, 200)
        raise HoldfastError(f"{path}: is no dataset that can be read ({reason})") from None
    if isinstance(table, datasets.DatasetDict):
        table = one_split(table, path)
    return stream_of_dataset(table, str(path), path.resolve().name, items_per_task, columns)


def stream_of_dataset(
    table: Any, source: str, name: str, items_per_task: int | None, columns: Columns
) -> Stream:
    """A loaded dataset as a stream. source: its name in errors; name: the stream's."""
    records = ((f"row {n}", values) for n, values in enumerate(table, start=1))
    return stream_of(source, records, partial(named_cells, columns), name, items_per_task, columns)


def write_dataset(stream: Stream, path: str | Path) -> None:
    """Write a stream as a dataset with all the columns of :func:`read_dataset`.

    Raises HoldfastError when the path exists or cannot be written.
    """
    path = Path(path)
    if path.exists():
        raise HoldfastError(f"{path}: is there already; choose another place, or remove it")
    rows = []
    for task in stream.tasks:
        for item in task.items:
            details = json.dumps(dict(item.details))
            filled = {**dict.fromkeys(KEYS), "aliases": [], **values_of(task, item)}
            rows.append({**filled, "details": details})
    datasets = library()
    # Declared types: datasets cannot infer one for a column of empty lists.
    text = datasets.Value("string")
    features = {key: datasets.List(text) if key == "aliases" else text for key in KEYS}
    table = datasets.Dataset.from_list(rows, features=datasets.Features(features))
    with atomic_directory(path) as folder:
        table.save_to_disk(str(folder))


def library() -> Any:
    """Import `datasets` without progress bars; HoldfastError when it is not installed."""
    try:
        import datasets
    except ImportError:
        raise HoldfastError(
            'Hugging Face datasets need one more package; pip install "holdfast[hub]"'
        ) from None
    datasets.disable_progress_bars()
    return datasets


def one_split(splits: Mapping[str, Any], source: Path | str) -> Any:
    """The split ``train``, with a warning of others, or the only one; HoldfastError if neither."""
    if "train" in splits or len(splits) == 1:
        if others := ", ".join(name for name in splits if len(splits) > 1 and name != "train"):
            logger.warning("%s: only its split train is read; it also has %s", source, others)
        return splits.get("train", next(iter(splits.values())))
    such_as = f", such as {source / next(iter(splits))}" if isinstance(source, Path) else ""
    raise HoldfastError(
        f"{source}: has the splits {', '.join(splits)} and no train; give the one that you mean"
        f"{such_as}"
    )
