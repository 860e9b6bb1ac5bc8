"""`holdfast report`: a study on one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from holdfast.cli.analyse import Directories, beside
from holdfast.cli.progress import loading


def report(
    directories: Directories,
    out: Annotated[Path | None, Option(help="The page; DIR/report.html if unsaid.")] = None,
    title: Annotated[str | None, Option(help="Its title.")] = None,
) -> None:
    """Write one HTML page that works offline: tables, matrices, curves, provenance."""
    print(write_report(*directories, out=out or beside(directories, "report.html"), title=title))


def write_report(*directories: Path, out: Path | None = None, title: str | None = None) -> Path:
    """Write the page of a study, by default into its first directory; return its path."""
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
