"""`python -m experiments.paper compare`: compare a study with the paper."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from holdfast.cli.analyse import Directories

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from experiments.paper.analysis.compare import Comparison

_FLIPS = 10


def compare(
    directories: Directories,
    _: Annotated[Literal["paper"], typer.Option("--with", help="What it is set beside.")] = "paper",
    dataset: Annotated[
        str | None,
        typer.Option("--dataset", help="Which of the paper's, if the stream has another name."),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Write the tables there too.")] = None,
) -> None:
    """Compare a study with the paper: retention, ranks, effects, and where they disagree."""
    from holdfast.cli.progress import loading

    with loading("making the tables"):
        from experiments.paper.analysis.beside_paper import beside_paper
        from experiments.paper.analysis.compare import compare as set_beside
        from experiments.paper.analysis.tables import analyse
        from holdfast.analysis.study import at_horizon, read_study
        from holdfast.analysis.tables import markdown

        study = read_study(*directories)
        comparison = set_beside(at_horizon(study.cells), dataset, study.matrices)
        more = beside_paper(analyse(study).tables, dataset)
    _print(comparison)
    for name, table in more.items():
        print(f"\n{name.replace('_', ' ')}\n\n{markdown(table)}")
    for line in (*comparison.notes, *study.missing):
        print(f"note: {line}")
    if out is not None:
        _write(comparison, more, out)
        print(out)


def _print(comparison: Comparison) -> None:
    from holdfast.analysis.tables import markdown

    print(markdown(comparison.compositions))
    if len(comparison.effects):
        print(markdown(comparison.effects))
    print(markdown(comparison.agreement))
    for flip in comparison.flips.head(_FLIPS).itertuples():
        print(
            f"{flip.dataset}: the paper has {flip.first} {flip.places_paper} above {flip.second}, "
            f"here it is {flip.places} below"
        )
    if (more := len(comparison.flips) - _FLIPS) > 0:
        print(f"... and {more} more pairs in the opposite order")


def _write(comparison: Comparison, more: Mapping[str, pd.DataFrame], place: Path) -> None:
    from holdfast.analysis.tables import json_rows
    from holdfast.core.files import write_text_atomically

    fields = ("compositions", "effects", "agreement", "flips")
    for name, table in {**{name: getattr(comparison, name) for name in fields}, **more}.items():
        path = place / f"compared_{name}"  # `analyse` may have written a table of the same name
        write_text_atomically(path.with_suffix(".csv"), table.to_csv(index=False), parents=True)
        write_text_atomically(path.with_suffix(".json"), json_rows(table))
