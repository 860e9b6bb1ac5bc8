"""`holdfast report`: a study on one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.analyse import Directories
from holdfast.core.errors import HoldfastError


def report(
    directories: Directories,
    out: Annotated[
        Path | None, typer.Option("--out", help="The page; DIR/report.html if unsaid.")
    ] = None,
    title: Annotated[str | None, typer.Option("--title", help="Its title.")] = None,
) -> None:
    """Write one HTML page that works offline: tables, matrices, curves, provenance."""
    if out is None and len(directories) > 1:
        raise HoldfastError("several directories: say with --out where the page goes")
    print(write_report(*directories, out=out, title=title))


def write_report(*directories: Path, out: Path | None = None, title: str | None = None) -> Path:
    """Write the page of a study, by default into its first directory; return its path."""
    from holdfast.cli.progress import loading

    with loading("making the page"):
        from holdfast.analysis.study import read_study
        from holdfast.core.files import make_folder
        from holdfast.report.page import write_page

        study = read_study(*directories)
        if out is None:
            out = directories[0] / "report.html"
        else:
            make_folder(out.parent, parents=True)
        return write_page(study, out, title=title)
