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
        typer.Option(
            "--to",
            help="The format; by default OUT's name decides: a .jsonl file, a table (.csv, .tsv, "
            ".json, .parquet, .xlsx), or released.",
        ),
    ] = None,
    items_per_task: Annotated[
        int | None,
        typer.Option("--items-per-task", help="Cut rows that name no task into such tasks."),
    ] = None,
    question_column: Annotated[
        str | None,
        typer.Option("--question-column", help="Which column or key of IN holds questions."),
    ] = None,
    answer_column: Annotated[
        str | None,
        typer.Option("--answer-column", help="Which column or key of IN holds answers."),
    ] = None,
) -> None:
    """Convert between the published layout, JSON lines, tables and a saved Hugging Face dataset."""
    from holdfast.streams import QuestionRegistry, read_stream
    from holdfast.streams.rows import Columns
    from holdfast.streams.stream import items_of
    from holdfast.streams.tables import TABLES

    suffix = out.suffix.lower()
    if to is None:
        to = Layout.jsonl if suffix == ".jsonl" else Layout.released
        to = Layout.table if suffix in TABLES else to
    elif to is Layout.table and suffix not in TABLES:
        raise HoldfastError(f"{out}: a table's name ends with one of {', '.join(TABLES)}")
    elif to not in (Layout.jsonl, Layout.table) and suffix in (".jsonl", *TABLES):
        raise HoldfastError(f"{out}: --to {to.value} writes a directory; name one, or leave it out")
    stream = read_stream(source, items_per_task, Columns(question_column, answer_column))
    if to is not Layout.released:
        # Readers of these formats refuse repeated questions, so name their places now.
        questions = QuestionRegistry()
        for place, item in items_of(stream.tasks):
            questions.add(item, f"{source}: {place}")
    write(stream, out, to)
    print_stream(stream, out)
