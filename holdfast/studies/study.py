"""A study's directory: lock it, check and record its settings, write its tables."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdfast.core.claims import FORMAT, check_same, read_format
from holdfast.core.errors import HoldfastError
from holdfast.core.files import lock_directory, write_json, write_text_atomically


@contextmanager
def claimed(directory: Path, question: Mapping[str, Any], store: Path) -> Iterator[None]:
    """Lock a directory for a study during the block; ``study.json`` records its settings.

    question: the settings, JSON values; store: the directory of the trajectories, which may move.
    Unless it is ``cells`` in the directory, ``store.json`` holds its path relative to there.
    Raises HoldfastError, having changed nothing, when the directory holds another study or other
    files, or another process holds it.
    """
    path = directory / "study.json"
    if path.exists():
        check_same(directory, "a study", read_format(path), question)
    elif directory.exists() and (foreign := _foreign(directory)):
        raise HoldfastError(
            f"{directory}: holds {foreign} but no study (study.json); choose an empty or a new "
            "directory"
        )
    with lock_directory(directory, parts=("study.json", "store.json", "cells")):
        if not path.exists():
            write_json(path, {"format": FORMAT, **question})
        store.parent.mkdir(parents=True, exist_ok=True)  # not made again where it is moved
        _tell_store(directory, store)
        yield


def _tell_store(directory: Path, store: Path) -> None:
    told = directory / "store.json"
    if store.resolve() != (directory / "cells").resolve():
        write_json(told, {"store": os.path.relpath(store, directory)})
    else:
        told.unlink(missing_ok=True)


def write_table(directory: Path, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows as ``name.csv`` and ``name.json``; None is an empty cell.

    Raises HoldfastError when the directory was moved or removed.
    """
    columns = list(dict.fromkeys(key for row in rows for key in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text_atomically(directory / f"{name}.csv", text.getvalue())
    write_json(directory / f"{name}.json", list(rows))


def settings_of(candidates: Iterable[Mapping[str, Any]]) -> list[str]:
    """The names of all candidates' settings, each once, in the order of first occurrence."""
    return list(dict.fromkeys(key for settings in candidates for key in settings))


def _foreign(directory: Path) -> str | None:
    if not directory.is_dir():
        return "a file"
    names = sorted(path.name for path in directory.iterdir() if not path.name.startswith("."))
    return names[0] if names else None
