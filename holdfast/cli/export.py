"""`holdfast export`: a learned model for programs without Holdfast."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Format(StrEnum):
    """The format to write."""

    peft = "peft"
    hf = "hf"


def export(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="A trajectory or a memory.", show_default=False)
    ],
    out: Annotated[
        Path,
        typer.Argument(metavar="OUT", help="A new or an empty directory.", show_default=False),
    ],
    to: Annotated[
        Format,
        typer.Option(
            "--to",
            help="hf: a complete model; peft: an adapter of the backbone.",
            show_default=False,
        ),
    ],
    after_task: Annotated[
        int | None,
        typer.Option("--after-task", help="A kept boundary; the last one by default."),
    ] = None,
) -> None:
    """Write a learned model for transformers or PEFT, with a README.md that says how to ask it."""
    from holdfast.cli.progress import loading

    with loading():
        from holdfast.exports.export import export as write

    with loading(f"writing {out}"):
        write(directory, to.value, out, after_task)
    print(out)
