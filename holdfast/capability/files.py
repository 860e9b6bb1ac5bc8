"""Read rows of published questions: from files below a folder, or from a dataset of the hub."""

from __future__ import annotations

import contextlib
import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from holdfast.capability.suite import Problem
from holdfast.core.errors import HoldfastError
from holdfast.core.hub import hub_or_cache
from holdfast.core.own import regular
from holdfast.streams.hf_dataset import library

Row: TypeAlias = Mapping[str, Any]
Placed: TypeAlias = tuple[str, Row]  # with the place where the row stands
# What reading a damaged value raises; the last three are of literals and of deep nesting.
_DAMAGE = (LookupError, TypeError, ValueError, SyntaxError, MemoryError, RecursionError)


class _Tabs(csv.excel_tab):
    quoting = csv.QUOTE_NONE  # a question may begin with a quotation mark


def located(suite: str, data_root: Path, *places: str) -> Path:
    """The first of ``places`` that exists below ``data_root/capability``, or else ``data_root``.

    places: paths such as ``gsm8k/test.jsonl``, the preferred first.
    Raises HoldfastError when none exists, naming the preferred one.
    """
    nested = data_root / "capability"
    for folder in (nested, data_root):
        for place in places:
            if (folder / place).exists():
                return folder / place
    missing = (nested if nested.is_dir() else data_root) / places[0]
    raise HoldfastError(
        f"{suite}: {missing} is not there; give --data-root a folder that holds it, or leave "
        f"{suite} out of --tasks"
    )


def published(
    suite: str,
    data_root: Path | None,
    hub: tuple[str, Sequence[str | None]],
    places: Sequence[str],
    files: tuple[str, Callable[[Path], str]] = ("", str),
    columns: Sequence[str] | None = None,
) -> dict[str, Iterable[Placed]]:
    """The rows of a suite, group by group.

    data_root: the folder of the published files; None: a dataset of the hub, its name and its
    configurations, all of them when there is none, each a group. places: of a file or a folder,
    see :func:`located`; files: the pattern of the folder's files and the group of each; columns:
    of tables without a header.
    Raises HoldfastError when `datasets`, the dataset or the files are missing.
    """
    if data_root is None:
        name, configs = hub
        with _reading(suite, name):
            configs = configs or sorted(library().get_dataset_config_names(name))
            loaded = {one: list(library().load_dataset(name, one, split="test")) for one in configs}
        return {
            str(config): [(f"dataset {name} row {n}", row) for n, row in enumerate(rows, start=1)]
            for config, rows in loaded.items()
        }
    pattern, group_of = files
    place = located(suite, data_root, *places)
    if place.is_file():
        return {"": file_rows(place, columns)}
    # Files that are called by a number come in the order of their numbers.
    paths = sorted(
        place.glob(pattern),
        key=lambda path: (path.parent, len(path.stem) if path.stem.isdigit() else 0, path),
    )
    if not paths:
        raise HoldfastError(f"{suite}: {place} holds no {pattern}; get the published files again")
    return {group_of(path): file_rows(path, columns) for path in paths}


def problems_of(
    suite: str,
    groups: Mapping[str, Iterable[Placed]],
    read: Callable[[str, int, Row], Problem | None],
) -> list[Problem]:
    """Every row as a problem, without those that ``read`` leaves out.

    groups: rows by language or subject; read: is given the group, the row's number in it, from 0,
    and the row, and raises what damaged values raise. Raises HoldfastError naming such a row's
    place.
    """
    found = []
    for group, rows in groups.items():
        for number, (place, row) in enumerate(rows):
            try:
                found.append(read(group, number, row))
            except _DAMAGE as error:
                raise HoldfastError(
                    f"{place}: is no question of {suite} ({_reason(error)}); get the published "
                    "file again"
                ) from None
    return [problem for problem in found if problem is not None]


def file_rows(path: Path, columns: Sequence[str] | None = None) -> Iterator[Placed]:
    """The objects of a .json or .jsonl file, or the rows of a .csv or .tsv file, with their places.

    columns: of a table without a header. Raises HoldfastError for a file that cannot be read or is
    damaged.
    """
    place = str(path)
    try:
        with regular(path).open(encoding="utf-8-sig", newline="") as file:
            if path.suffix == ".json":
                yield place, json.load(file)
            elif path.suffix == ".jsonl":
                for number, line in enumerate(file, start=1):
                    place = f"{path} line {number}"
                    if line.strip():
                        yield place, json.loads(line)
            else:
                dialect: type[csv.Dialect] = _Tabs if path.suffix == ".tsv" else csv.excel
                reader = csv.DictReader(file, columns, dialect=dialect)
                for row in reader:
                    yield f"{path} line {reader.line_num}", row
    except OSError as error:
        raise HoldfastError(f"{path}: cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError, csv.Error) as error:
        raise HoldfastError(
            f"{place}: is damaged ({_reason(error)}); get the published file again"
        ) from None


@contextlib.contextmanager
def _reading(suite: str, path: str) -> Iterator[None]:
    library()  # outside the try: its error for a missing installation is not wrapped
    reachable = True
    try:
        with hub_or_cache() as reachable:
            yield
    # datasets does not wrap errors of the network, the hub, the file formats and Arrow.
    except Exception as error:
        away = "not in the hub's cache, and the hub does not answer"
        raise HoldfastError(
            f"{suite}: dataset {path} cannot be loaded ({_reason(error) if reachable else away}); "
            f"give a folder of its published files with --data-root, or leave {suite} out of "
            "--tasks"
        ) from error


def _reason(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]
