"""`holdfast analyse`: the tables and figures of a study."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.core.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.analysis.study import Study
    from holdfast.analysis.tables import Analysis

Directories = Annotated[
    list[Path],
    typer.Argument(metavar="DIR...", help="What run, suite or search wrote, or a folder of these."),
]


def analyse(
    directories: Directories,
    out: Annotated[
        Path | None, typer.Option("--out", help="For the results; DIR/analysis if unsaid.")
    ] = None,
    figures: Annotated[
        bool, typer.Option("--figures/--no-figures", help="Draw the figures too.")
    ] = True,
    where: Annotated[
        list[str] | None,
        typer.Option(
            "--where",
            metavar="KEY=VALUE",
            help="Of a sweep, only runs with this setting, such as optim.lr=1e-3; repeatable.",
        ),
    ] = None,
) -> None:
    """Make every table and figure that finished trajectories give; say why others are absent."""
    from holdfast.cli.progress import loading
    from holdfast.results.description import is_described

    place = out or _beside(directories)
    if is_described(place) or (place / "study.json").is_file():
        # Results would overwrite a suite's own cells.csv.
        raise HoldfastError(f"{place}: is what a study or a run wrote; give another --out")
    with loading("making the tables"):
        from holdfast.analysis.study import read_study
        from holdfast.analysis.tables import analyse as make_tables
        from holdfast.analysis.tables import markdown

        study = read_study(*directories, where=_dotted(where or []))
        analysis = make_tables(study)
        _write(place, study, analysis)
        absent = dict(analysis.absent)
        if figures:
            drawn = _draw(place, study, analysis)
            absent |= {f"figure {name}": why for name, why in drawn.items()}
    if "configurations" in analysis.tables:
        print(markdown(analysis.tables["configurations"]), end="\n")
    for line in study.missing:
        print(f"missing: {line}")
    for why in dict.fromkeys(absent.values()):
        print(f"no {', '.join(name for name in absent if absent[name] == why)}: {why}")
    print(place)


def _dotted(lines: list[str]) -> dict[str, Any]:
    from holdfast.core.config import apply_overrides

    values = {}
    for line in lines:
        key, separator, text = line.partition("=")
        if not separator:
            raise HoldfastError(f"--where {line}: write KEY=VALUE, such as optim.lr=1e-3")
        values[key] = apply_overrides({}, [f"value={text}"])["value"]
    return values


def _beside(directories: list[Path]) -> Path:
    if len(directories) > 1:
        raise HoldfastError("several directories: say with --out where the results go")
    return directories[0] / "analysis"


def _write(place: Path, study: Study, analysis: Analysis) -> None:
    """Write each table as CSV and JSON, all to analysis.md, and the cells they come from."""
    from holdfast.analysis.tables import markdown
    from holdfast.core.files import write_text_atomically

    for name in analysis.absent:
        _remove(place / f"{name}.csv", place / f"{name}.json")
    cells = study.cells.assign(
        **{name: [os.path.relpath(path, place) for path in study.cells[name]] for name in _PATHS}
    )
    for name, table in {**analysis.tables, "cells": cells}.items():
        write_text_atomically(place / f"{name}.csv", table.to_csv(index=False))
        write_text_atomically(place / f"{name}.json", table.to_json(orient="records", indent=1))
    parts = ["# Analysis\n\nShares, not percent; a deviation is over seeds, with n - 1.\n"]
    for name, table in analysis.tables.items():
        if name not in _LONG:
            parts.append(f"\n## {name.replace('_', ' ')}\n\n{markdown(table)}")
    parts += _listed("Missing", dict.fromkeys(study.missing, ""))
    parts += _listed("Not made", analysis.absent)
    write_text_atomically(place / "analysis.md", "".join(parts))


def _remove(*stale: Path) -> None:
    """Remove results of an earlier call that this one could not make."""
    for path in stale:
        with suppress(OSError):
            path.unlink(missing_ok=True)


_PATHS = ("study", "path")
# A row per age, per metric, per pair, per task: for figures, not for reading.
_LONG = ("survival", "means", "differences", "samples", "samples_by_age")


def _listed(title: str, lines: Mapping[str, str]) -> list[str]:
    if not lines:
        return []
    items = [f"- {name}: {why}\n" if why else f"- {name}\n" for name, why in lines.items()]
    return [f"\n## {title}\n\n", *items]


def _draw(place: Path, study: Study, analysis: Analysis) -> Mapping[str, str]:
    from holdfast.report.figures import save
    from holdfast.report.paper_figures import paper_figures

    drawn = paper_figures(study, analysis)
    for name in drawn.absent:
        _remove(*(place / "figures" / f"{name}.{kind}" for kind in ("png", "pdf")))
    for name, figure in drawn.figures.items():
        save(figure, place / "figures" / name)
    return drawn.absent
