"""`holdfast stream symbol-qa`: the paper's random keys and values, as files."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli.stream.output import Layout, Out, place_of, print_stream, write


def symbol_qa(
    out: Out,
    seed: Annotated[int, typer.Option("--seed", help="42 gives the published stream.")] = 42,
    tasks: Annotated[int, typer.Option("--tasks", help="How many tasks.")] = 100,
    items: Annotated[int, typer.Option("--items", help="Items in each task.")] = 100,
    layout: Annotated[Layout, typer.Option("--layout", help="The format.")] = Layout.released,
) -> None:
    """Write Symbol-QA: random six-letter keys, each with a random value."""
    from holdfast.streams import symbol_qa as generate

    place = place_of(out, layout)
    made = generate(tasks, items, seed)
    write(made, place, layout)
    print_stream(made, place)
