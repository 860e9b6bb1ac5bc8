"""Streams from and to Hugging Face `datasets`: one row an item, as it is saved to disk.

And the hub that datasets and models come from, which may be out of reach.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.streams.rows import KEYS, read_rows, stream_of, values_of
from holdfast.streams.stream import Stream


def is_dataset(path: Path) -> bool:
    """Whether a directory was written by ``save_to_disk``."""
    return (path / "dataset_dict.json").is_file() or (path / "state.json").is_file()


def read_dataset(path: str | Path, items_per_task: int | None = None) -> Stream:
    """Read a dataset that ``save_to_disk`` wrote, its columns named as the keys of a JSON line.

    Empty values (None, no aliases) count as absent; ``details`` is JSON text. Of several splits,
    ``train`` is read. Other columns are ignored. Tasks are made as by ``read_jsonl``.

    Raises HoldfastError naming the place and the row.
    """
    path = Path(path)
    table = _table(path)
    missing = [key for key in ("question", "answer") if key not in table.column_names]
    if missing:
        raise HoldfastError(
            f"{path}: has no column {missing[0]}, but {', '.join(table.column_names)}; "
            "rename its columns to question and answer"
        )
    columns = [key for key in KEYS if key in table.column_names]
    records = enumerate(table.select_columns(columns), start=1)
    rows = read_rows(str(path), ((f"row {n}", values) for n, values in records), _given)
    if not rows:
        raise _empty(path)
    return stream_of(str(path), rows, path.resolve().name, items_per_task)


def write_dataset(stream: Stream, path: str | Path) -> None:
    """Write a stream as a dataset with all the columns of :func:`read_dataset`.

    Raises HoldfastError when the place is taken or cannot be written.
    """
    path = Path(path)
    if path.exists():
        raise HoldfastError(f"{path}: is there already; choose another place, or remove it")
    rows = []
    for task in stream.tasks:
        for item in task.items:
            values = {"aliases": [], "id": None, **values_of(task, item)}
            values["details"] = json.dumps(values.get("details", {}))
            rows.append({key: values[key] for key in KEYS})
    datasets = library()
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        # Strings throughout: a column of empty lists would have no type.
        text = datasets.Value("string")
        features = {key: datasets.List(text) if key == "aliases" else text for key in KEYS}
        table = datasets.Dataset.from_list(rows, features=datasets.Features(features))
        table.save_to_disk(str(part))
        part.rename(path)
    except OSError as error:
        raise HoldfastError(f"{path}: cannot be written ({error.strerror or error})") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def library() -> Any:
    """The `datasets` library, quiet; HoldfastError when it is not installed."""
    try:
        import datasets
    except ImportError:
        raise HoldfastError(
            'Hugging Face datasets need one more package; pip install "holdfast[hub]"'
        ) from None
    datasets.disable_progress_bars()
    return datasets


def _table(path: Path) -> Any:
    datasets = library()
    try:
        loaded = datasets.load_from_disk(str(path))
    except IndexError:  # of the library, which looks for the first of no tables
        raise _empty(path) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise HoldfastError(f"{path}: is no dataset that can be read ({reason})") from None
    if not isinstance(loaded, datasets.DatasetDict):
        return loaded
    if "train" in loaded or len(loaded) == 1:
        return loaded.get("train", next(iter(loaded.values())))
    raise HoldfastError(
        f"{path}: has the splits {', '.join(loaded)} and no train; save the one that you mean"
    )


def _empty(path: Path) -> HoldfastError:
    return HoldfastError(f"{path}: has no rows; a stream needs at least one")


def _given(values: dict[str, Any]) -> dict[str, Any]:
    given = {key: value for key, value in values.items() if value is not None}
    if isinstance(given.get("details"), str):
        try:
            given["details"] = json.loads(given["details"] or "{}")
        except (ValueError, RecursionError):  # brackets may nest too deep
            raise HoldfastError('"details" is no JSON; write an object as text') from None
    return given
