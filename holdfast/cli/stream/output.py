"""How the verbs of `holdfast stream` write and report the streams that they make."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.core.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.streams import Stream

Out = Annotated[
    Path, typer.Option("--out", help="The stream's directory; `run` takes it as stream.name.")
]
# Files that a command keeps beside a stream that it builds over several calls.
RECORDS = ("verdicts", "replies.jsonl")


class Layout(StrEnum):
    """How a stream is written."""

    released = "released"
    jsonl = "jsonl"
    datasets = "datasets"
    table = "table"


def place_of(out: Path, layout: Layout) -> Path:
    """The path of a stream written to ``out``, to be given to `run`."""
    from holdfast.streams.load import DATASET_IN_DIRECTORY, JSONL_IN_DIRECTORY

    if layout is Layout.table:
        raise HoldfastError(
            f"--layout table: write another layout, then holdfast stream convert {out} FILE.csv"
        )
    inside = {Layout.jsonl: JSONL_IN_DIRECTORY, Layout.datasets: DATASET_IN_DIRECTORY}
    if out.suffix.lower() == ".jsonl":
        if layout is Layout.datasets:
            raise HoldfastError(f"{out}: --layout datasets writes a directory; name one")
        return out
    return out / inside[layout] if layout in inside else out


def write(stream: Stream, place: Path, layout: Layout) -> None:
    """Write a stream; warn if the format loses exact case. HoldfastError if the place is taken."""
    from holdfast.streams import write_dataset, write_jsonl, write_released
    from holdfast.streams.tables import write_table

    place = Path(os.path.abspath(place))
    if place.suffix.lower() == ".jsonl" or layout is Layout.table:
        if place.exists():
            raise HoldfastError(f"{place}: is there already; choose another place, or remove it")
        (write_table if layout is Layout.table else write_jsonl)(stream, place)
    else:
        (write_dataset if layout is Layout.datasets else write_released)(stream, place)
    if stream.exact_case and layout is not Layout.released:
        print(
            "this format does not say that answers need their exact case; run it with "
            "evaluation.match=exact",
            file=sys.stderr,
        )


def print_stream(stream: Stream, place: Path) -> None:
    """Print a stream's name, size, fingerprint and path."""
    items = sum(len(task.items) for task in stream.tasks)
    print(f"{stream.name}: {len(stream.tasks)} tasks, {items} items")
    print(f"fingerprint {stream.fingerprint}")
    print(place)


def claim(out: Path, layout: Layout) -> None:
    """Refuse, before any work, a directory that cannot hold a stream built over several calls."""
    if out.suffix.lower() == ".jsonl":
        raise HoldfastError(f"{out}: give a directory, and --layout jsonl for {out.name} in it")
    if out.exists() and not out.is_dir():
        raise HoldfastError(f"{out}: is a file; give a directory")
    if _is_there(place_of(out, layout)) and not any((out / name).exists() for name in RECORDS):
        raise HoldfastError(
            f"{out}: holds a stream that was not built here; choose another directory"
        )


def finish(stream: Stream, out: Path, layout: Layout) -> None:
    """Write a stream built from the records in ``out``; a stream already there must be the same.

    A repeated call builds it again from the same records, so finding it there is no error.
    """
    from holdfast.streams import read_stream

    place = place_of(out, layout)
    if not _is_there(place):
        write(stream, place, layout)
    elif read_stream(place).fingerprint != stream.fingerprint:
        raise HoldfastError(
            f"{place}: holds the stream of an earlier call with other options; nothing is lost: "
            "give another --layout, or remove what is the stream there and keep "
            f"{' and '.join(name for name in RECORDS if (out / name).exists())}"
        )
    print_stream(stream, place)


def _is_there(place: Path) -> bool:
    from holdfast.streams.hf_dataset import is_dataset
    from holdfast.streams.released import is_released

    return place.is_file() or is_released(place) or is_dataset(place)
