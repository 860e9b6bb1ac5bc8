"""Read a source as candidates, from its published files or from the Hugging Face hub."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from experiments.paper.real_qa.candidate import CandidateItem, Left, SourceRecords, UnusableError
from experiments.paper.real_qa.reader import Row, file_rows
from experiments.paper.real_qa.sources import SOURCES, Source
from holdfast.core.errors import HoldfastError, described, did_you_mean
from holdfast.core.hub import hub_or_cache
from holdfast.streams.hf_dataset import library
from holdfast.streams.item import quoted


def find_files(root: Path, name: str) -> list[Path]:
    """The published files of one source under ``root/<name>`` or ``root/*/<name>``, sorted.

    When neither exists, ``root`` itself may be the folder of that name. The files may lie at any
    depth in it; other files are ignored. Raises HoldfastError for an unknown source.
    """
    source = _source(name)
    folders = [root / name, *root.glob(f"*/{name}")]
    if root.resolve().name == name:
        folders.append(root)
    folder = next((path for path in folders if path.is_dir()), root / name)
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file() and source.is_question_file(path.relative_to(folder).as_posix())
    )


def read_files(name: str, paths: Iterable[Path]) -> SourceRecords:
    """Read published files of one source, in the order given.

    A record whose content cannot be used is left out, with its place and the reason; a record that
    several files hold is read from each.
    Raises HoldfastError for an unknown source, no files, and a file that is not of the source's
    published form, naming the file and the line or record.
    Source: app:data-real.
    """
    source, files = _source(name), list(paths)
    try:
        if not files:
            raise HoldfastError(f"no published files of {name}")
        rows = (
            row for path in files for row in file_rows(path, source.unpack, source.is_question_file)
        )
        return _gather(name, rows, published=True)
    except HoldfastError as error:
        raise HoldfastError(
            f"{error}; give published files of {name}: {', '.join(source.patterns)}"
        ) from None


def read_hub(name: str, hub: tuple[str, str | None, str] | None = None) -> SourceRecords:
    """Read one source from the Hugging Face hub, or from its cache. hub: another dataset or split.

    Raises HoldfastError when `datasets` is not installed, the dataset cannot be loaded, or its
    rows do not have the source's form.
    Source: app:data-real.
    """
    source = _source(name)
    load_dataset = library().load_dataset
    try:
        rows = _hub_rows(load_dataset, *(hub or source.hub))
        return _gather(name, rows, published=False)
    except HoldfastError as error:
        raise HoldfastError(
            f"dataset {error}; check its name and the network, or download the published files of "
            f"{name} ({', '.join(source.patterns)}) and give their folder with --data-root"
        ) from None


def _source(name: str) -> Source:
    if name not in SOURCES:
        raise HoldfastError(f"unknown source {quoted(name)}; {did_you_mean(name, SOURCES)}")
    return SOURCES[name]


def _hub_rows(
    load_dataset: Callable[..., Iterable[Any]], path: str, config: str | None, split: str
) -> Iterator[Row]:
    dataset = " ".join(part for part in (path, config, split) if part)
    # load_dataset also reads a local directory.
    reach = contextlib.nullcontext(True) if Path(path).is_dir() else hub_or_cache()
    reachable = True
    try:
        with reach as reachable:
            rows = load_dataset(path, config, split=split)
        for number, values in enumerate(rows, start=1):
            yield Row(f"{dataset} row {number}", f"{split}:{number}", values)
    # datasets does not wrap errors of the network, the hub, the file formats and Arrow.
    except Exception as error:
        reason = described(error, 200)
        if not reachable and isinstance(error, OSError):
            reason = "not in the hub's cache, and the hub does not answer"
        raise HoldfastError(f"{dataset}: cannot be loaded ({reason})") from error


def _gather(name: str, rows: Iterable[Row], *, published: bool) -> SourceRecords:
    """Rows as candidates with unique ids; HoldfastError for a row of another form."""
    candidates: list[CandidateItem] = []
    left: list[Left] = []
    taken: set[str] = set()
    for row in rows:
        try:
            given_id, question, answers = SOURCES[name].fields(row.values, published)
            label = _unique(f"{name}:{_label(given_id) or row.key}", taken)
            candidates.append(CandidateItem(name, label, question, tuple(answers)))
            taken.add(label)
        except UnusableError as unusable:
            left.append(Left(row.place, str(unusable)))
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            reason = f'"{error.args[0]}" is missing' if isinstance(error, KeyError) else str(error)
            raise HoldfastError(f"{row.place}: is of another form ({reason})") from None
    return SourceRecords(tuple(candidates), tuple(left), len(candidates) + len(left))


def _label(value: object) -> str | None:
    """A record's own id on one line; None unless it is text or an integer, and printable."""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        return None
    label = " ".join(str(value).split())
    return label if label.isprintable() else None


def _unique(label: str, taken: set[str]) -> str:
    if label not in taken:
        return label
    number = 2
    while f"{label}#{number}" in taken:
        number += 1
    return f"{label}#{number}"
