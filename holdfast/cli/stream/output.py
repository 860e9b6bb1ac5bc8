"""Where the verbs of `holdfast stream` put what they made, and how they speak of it."""

from __future__ import annotations

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


def write(stream: Stream, out: Path, layout: Layout) -> Path:
    """Write a stream below ``out``, or as ``out`` when that is a ``.jsonl`` file; where it is."""
    from holdfast.streams import write_dataset, write_jsonl, write_released
    from holdfast.streams.load import JSONL_IN_DIRECTORY

    if out.suffix.lower() == ".jsonl":
        layout = Layout.jsonl
    if layout is Layout.released:
        write_released(stream, out)
        return out
    if layout is Layout.datasets:
        write_dataset(stream, out)
        return out
    place = out if out.suffix.lower() == ".jsonl" else out / JSONL_IN_DIRECTORY
    if place.exists():
        raise HoldfastError(f"{place}: is there already; choose another place, or remove it")
    write_jsonl(stream, place)
    return place


def refuse_file(out: Path) -> None:
    """What is built over several calls needs a directory for its records."""
    if out.suffix.lower() == ".jsonl":
        raise HoldfastError(f"{out}: give a directory, and --layout jsonl for {out.name} in it")


def print_stream(stream: Stream, place: Path) -> None:
    """One line on what was made, its fingerprint, and where it is."""
    items = sum(len(task.items) for task in stream.tasks)
    print(f"{stream.name}: {len(stream.tasks)} tasks, {items} items")
    print(f"fingerprint {stream.fingerprint}")
    print(place)


def finish(stream: Stream, out: Path, layout: Layout) -> None:
    """Write a stream that a directory's own records gave; one that is there already must equal it.

    ``out`` also holds what the stream was made from, so making it again is no mistake.
    """
    from holdfast.streams import read_stream
    from holdfast.streams.load import JSONL_IN_DIRECTORY
    from holdfast.streams.released import is_released

    place = out / JSONL_IN_DIRECTORY if layout is Layout.jsonl else out
    if layout is Layout.datasets:
        place = out / "dataset"
    there = place.is_file() or is_released(place) or (layout is Layout.datasets and place.exists())
    if not there:
        print_stream(stream, write(stream, place, layout))
    elif read_stream(place).fingerprint == stream.fingerprint:
        print_stream(stream, place)
    else:
        raise HoldfastError(
            f"{place}: holds another stream already; choose another place, or remove it"
        )
