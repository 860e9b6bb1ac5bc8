"""`holdfast analyse` and `holdfast report`: tables, figures and a page of what was learned."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from holdfast.cli.progress import loading
from holdfast.core.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.analysis.study import Study
    from holdfast.analysis.tables import Analysis, Table
    from holdfast.report.figures import Figures, StudyFigures

Directories = Annotated[
    list[Path],
    Argument(metavar="DIR...", help="What run, suite or search wrote, or a folder of these."),
]
Out = Annotated[Path | None, Option(help="For the results; DIR/analysis if unsaid.")]
Drawn = Annotated[bool, Option("--figures/--no-figures", help="Draw the figures too.")]
Where = Annotated[
    list[str] | None,
    Option(
        metavar="KEY=VALUE",
        help="Of a sweep, only runs with this setting, such as optim.lr=1e-3; repeatable.",
    ),
]

# For figures, not in analysis.md: a row for each age, metric, pair or task.
_LONG = ("survival", "means", "differences", "samples", "samples_by_age")


def analyse(
    directories: Directories, out: Out = None, figures: Drawn = True, where: Where = None
) -> None:
    """Make every table and figure that finished trajectories give; say why others are absent."""
    from holdfast.analysis.tables import TABLES
    from holdfast.report.figures import FIGURES

    write_analysis(directories, out, where or [], TABLES, FIGURES if figures else {})


def write_analysis(
    directories: list[Path],
    out: Path | None,
    where: list[str],
    tables: Sequence[Table],
    figures: Figures,
) -> None:
    """Write tables and figures of a study; print what is missing and what cannot be made."""
    from holdfast.results.record import is_described

    place = out or beside(directories, "analysis")
    if is_described(place) or (place / "study.json").is_file():
        # Results would overwrite a suite's own cells.csv.
        raise HoldfastError(f"{place}: is what a study or a run wrote; give another --out")
    with loading("making the tables"):
        from holdfast.analysis.study import read_study
        from holdfast.analysis.tables import analyse as make_tables
        from holdfast.analysis.tables import markdown
        from holdfast.report.figures import save, study_figures

        study = read_study(*directories, where=_dotted(where))
        analysis = make_tables(study, tables)
        drawn = study_figures(study, analysis, figures)
        absent = dict(analysis.absent)
        absent.update((f"figure {name}", why) for name, why in drawn.absent.items())
        _take(place, analysis, drawn)
        _write(place, study, analysis)
        for name, figure in drawn.figures.items():
            save(figure, place / "figures" / name)
    if "configurations" in analysis.tables:
        print(markdown(analysis.tables["configurations"]), end="\n")
    for line in study.missing:
        print(f"missing: {line}")
    for why in dict.fromkeys(absent.values()):
        print(f"no {', '.join(name for name in absent if absent[name] == why)}: {why}")
    print(place)


def _dotted(lines: list[str]) -> dict[str, Any]:
    from holdfast.core.config import setting_value

    values = {}
    for line in lines:
        key, separator, text = line.partition("=")
        if not separator:
            raise HoldfastError(f"--where {line}: write KEY=VALUE, such as optim.lr=1e-3")
        values[key] = setting_value(text)
    return values


def beside(directories: Sequence[Path], name: str) -> Path:
    """The default path of a result, in the directory; HoldfastError if there are several."""
    if len(directories) > 1:
        raise HoldfastError("several directories: say with --out where the result goes")
    return directories[0] / name


def _take(place: Path, analysis: Analysis, drawn: StudyFigures) -> None:
    """Refuse to overwrite what analyse did not write; remove what cannot be made any more."""
    from holdfast.core.files import take_place

    def files(tables: Iterable[str], figures: Iterable[str]) -> list[str]:
        written = [f"{name}.{kind}" for name in tables for kind in ("csv", "json")]
        return written + [f"figures/{name}.{kind}" for name in figures for kind in ("png", "pdf")]

    names = ["analysis.md", *files([*analysis.tables, "cells"], drawn.figures)]
    take_place(place, "written.json", names, stale=files(analysis.absent, drawn.absent))


def _write(place: Path, study: Study, analysis: Analysis) -> None:
    from holdfast.analysis.tables import json_rows, markdown
    from holdfast.core.files import write_text_atomically

    cells = study.cells.copy()
    for column in ("study", "path"):
        cells[column] = [os.path.relpath(path, place) for path in cells[column]]
    for name, table in {**analysis.tables, "cells": cells}.items():
        write_text_atomically(place / f"{name}.csv", table.to_csv(index=False))
        write_text_atomically(place / f"{name}.json", json_rows(table))
    parts = ["# Analysis\n\nShares, not percent; a deviation is over seeds, with n - 1.\n"]
    for name, table in analysis.tables.items():
        if name not in _LONG:
            parts.append(f"\n## {name.replace('_', ' ')}\n\n{markdown(table)}")
    if study.missing:
        parts += ["\n## Missing\n\n", *(f"- {line}\n" for line in study.missing)]
    if analysis.absent:
        absent = (f"- {name}: {why}\n" for name, why in analysis.absent.items())
        parts += ["\n## Not made\n\n", *absent]
    write_text_atomically(place / "analysis.md", "".join(parts))


def report(
    directories: Directories,
    out: Annotated[Path | None, Option(help="The page; DIR/report.html if unsaid.")] = None,
    title: Annotated[str | None, Option(help="Its title.")] = None,
) -> None:
    """Write one HTML page that works offline: tables, matrices, curves, provenance."""
    print(write_report(*directories, out=out or beside(directories, "report.html"), title=title))


def write_report(*directories: Path, out: Path | None = None, title: str | None = None) -> Path:
    """Write the page of a study, by default into its first directory; return its path."""
    from holdfast.core.files import make_folder

    with loading("making the page"):
        from holdfast.analysis.study import read_study
        from holdfast.report.pages import write_page

        out = out or directories[0] / "report.html"
        study = read_study(*directories)
        make_folder(out.parent, parents=True)
        return write_page(study, out, title=title)
