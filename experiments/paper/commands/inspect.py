"""`python -m experiments.paper stream inspect`: what is in one source's published files."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.printing import say
from holdfast.cli.stream import FEW, print_example, print_items
from holdfast.core.errors import HoldfastError
from holdfast.streams.item import evenly


def inspect(
    path: Annotated[Path, typer.Argument(help="A published file, or a folder of them.")],
    source: Annotated[str, typer.Option("--source", help="The source that published it: squad.")],
    backbone: Annotated[
        str, typer.Option("--backbone", help="Whose tokens to count; a name or a directory.")
    ] = "embedded",
    examples: Annotated[int, typer.Option("--examples", min=0, help="Items to show.")] = 3,
) -> None:
    """Show how much of a source is usable, what is left out and why, and examples."""
    from experiments.paper.real_qa import find_files, read_files
    from holdfast.model.load import load_tokenizer

    files = find_files(path, source) if path.is_dir() else [path]
    if not files:
        raise HoldfastError(
            f"{path}: holds no published files of {source} in a folder of that name, nor is it "
            "that folder; give one of them"
        )
    reading = read_files(source, files)
    candidates = reading.candidates
    tokenizer = load_tokenizer(backbone)
    say("source", f"{source}, {reading.records} records in {len(files)} files")
    say("candidates", str(len(candidates)))
    reasons = Counter(record.reason for record in reading.left)
    for reason, count in reasons.most_common():
        places = [record.place for record in reading.left if record.reason == reason]
        more = ", ..." if count > FEW else ""
        say("left out", f"{count}: {reason} ({', '.join(places[:FEW])}{more})")
    print_items([candidate.item() for candidate in candidates], tokenizer, backbone)
    for candidate in evenly(candidates, examples):
        print_example(candidate.question, candidate.answers)
