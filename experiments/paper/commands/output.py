"""The output directory of a stream that is built over several calls, with their records."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.cli.stream import Layout, place_of, print_stream, write
from holdfast.core.errors import HoldfastError
from holdfast.core.file_checks import require_directory

if TYPE_CHECKING:
    from holdfast.streams import Stream

# What a command records beside its stream, to continue from.
RECORDS = ("verdicts", "replies.jsonl")


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

    A repeated call builds it again from the same records, so finding it there is no error. Raises
    HoldfastError for another stream, or if ``out`` was moved meanwhile: the records went with it.
    """
    from holdfast.streams import read_stream

    place = place_of(out, layout)
    is_there = _is_there(place)
    require_directory(out)  # right before writing: the imports in _is_there take a while
    if not is_there:
        write(stream, place, layout)
    elif read_stream(place).fingerprint != stream.fingerprint:
        raise HoldfastError(
            f"{place}: holds the stream of an earlier call with other options; nothing is lost: "
            "give another --layout, or remove what is the stream there and keep "
            f"{' and '.join(name for name in RECORDS if (out / name).exists())}"
        )
    print_stream(stream, place)


def _is_there(place: Path) -> bool:
    from holdfast.streams.hf_dataset import is_dataset_directory
    from holdfast.streams.released import is_released

    return place.is_file() or is_released(place) or is_dataset_directory(place)
