"""`holdfast stream convert`: from one format to another."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.stream.output import Layout, print_stream, write
from holdfast.core.errors import HoldfastError


def convert(
    source: Annotated[Path, typer.Argument(metavar="IN", help="A stream in any format.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Where to write it.")],
    to: Annotated[
        Layout | None,
        typer.Option("--to", help="The format; by default OUT's name decides, .jsonl or released."),
    ] = None,
    items_per_task: Annotated[
        int | None,
        typer.Option("--items-per-task", help="Cut rows that name no task into such tasks."),
    ] = None,
) -> None:
    """Convert between the published layout, JSON lines and a saved Hugging Face dataset."""
    from holdfast.streams import QuestionRegistry, read_stream
    from holdfast.streams.stream import place_of

    if to is None:
        to = Layout.jsonl if out.suffix.lower() == ".jsonl" else Layout.released
    elif to is not Layout.jsonl and out.suffix.lower() == ".jsonl":
        raise HoldfastError(f"{out}: --to {to.value} writes a directory; name one, or leave it out")
    stream = read_stream(source, items_per_task)
    if to is not Layout.released:
        # Read back, these formats refuse what stands twice; so the place is said now.
        questions = QuestionRegistry()
        for task in stream.tasks:
            for number, item in enumerate(task.items, start=1):
                questions.add(item, f"{source}: {place_of(task, number)}")
    write(stream, out, to)
    print_stream(stream, out)
