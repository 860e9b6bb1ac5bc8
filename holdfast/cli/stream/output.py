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
