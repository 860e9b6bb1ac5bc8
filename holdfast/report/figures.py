"""Draw the figures for which a study has the data, and write them as files or inline SVG."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import NamedTuple, TypeAlias

import pandas as pd
from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.figure import Figure

from holdfast.analysis.study import Study
from holdfast.analysis.tables import Analysis
from holdfast.core.errors import HoldfastError
from holdfast.core.files import atomic_write
from holdfast.report.bars import plot_capability, plot_samples
from holdfast.report.curves import plot_item_groups, plot_survival
from holdfast.report.matrices import leading_methods, plot_matrices, plot_noise

_PIXELS = 145  # of a screen, per inch of a figure

Tables: TypeAlias = Mapping[str, pd.DataFrame]
# Figure name -> (name of the table that it needs, function that draws it).
Figures: TypeAlias = Mapping[str, tuple[str, Callable[[Study, Tables], Figure]]]

FIGURES: Figures = {
    "survival": (
        "survival",
        lambda _, tables: plot_survival(
            shown_methods(tables["survival"], tables["configurations"])
        ),
    ),
    "noise": ("differences", lambda _, tables: plot_noise(tables["differences"])),
    "capability": ("capability", lambda _, tables: plot_capability(tables["capability"])),
    "items": (
        "items",
        lambda _, tables: plot_item_groups(shown_methods(tables["items"], tables["items"])),
    ),
    "samples": (
        "samples",
        lambda _, tables: plot_samples(
            shown_methods(tables["samples"], tables["samples"]), tables["samples_by_age"]
        ),
    ),
    "matrices": (
        "configurations",
        lambda study, tables: plot_matrices(_of(study, tables["configurations"])),
    ),
}


@dataclass(frozen=True)
class StudyFigures:
    """figures: by name; absent: by name, why a figure cannot be drawn."""

    figures: Mapping[str, Figure]
    absent: Mapping[str, str]


def study_figures(study: Study, analysis: Analysis, wanted: Figures = FIGURES) -> StudyFigures:
    """Draw those of the wanted figures for which the study has the data."""
    drawn: dict[str, Figure] = {}
    absent: dict[str, str] = {}
    for name, (needed, draw) in wanted.items():
        if needed not in analysis.tables:
            absent[name] = analysis.absent[needed]
            continue
        try:
            drawn[name] = draw(study, analysis.tables)
        except HoldfastError as error:
            absent[name] = str(error)
    return StudyFigures(drawn, absent)


def shown_methods(table: pd.DataFrame, ranked: pd.DataFrame) -> pd.DataFrame:
    """The rows of those methods that a figure has room for.

    Of a single data set these are up to six, of several up to three of each, as
    :func:`holdfast.report.matrices.leading_methods` chooses. ranked: the best Final first.
    """
    datasets = ranked.groupby("dataset", sort=False)["method"]
    most = 6 if len(datasets) == 1 else 3
    chosen = {
        (dataset, method)
        for dataset, methods in datasets
        for method in leading_methods(list(dict.fromkeys(methods)), most)
    }
    pairs = zip(table["dataset"], table["method"], strict=True)
    return table[[pair in chosen for pair in pairs]]


def _of(study: Study, table: pd.DataFrame) -> Study:
    """The study, restricted to the data sets in a table."""
    return replace(study, cells=study.cells[study.cells["dataset"].isin(table["dataset"])])


def save(figure: Figure, path: Path) -> list[Path]:
    """Write ``path``.png and ``path``.pdf, with text as text in the PDF; return both paths.

    The PNG has the figure's dots per inch. Equal figures give equal files. Raises HoldfastError
    when the files cannot be written.
    """
    written = [path.with_name(f"{path.name}.{kind}") for kind in ("png", "pdf")]
    with rc_context({"pdf.fonttype": 42}):
        for target in written:
            kind = target.suffix.removeprefix(".")
            dated = {"CreationDate": None} if kind == "pdf" else None
            with atomic_write(target, parents=True) as temporary:
                figure.savefig(temporary, format=kind, dpi="figure", metadata=dated)
    return written


class Svg(NamedTuple):
    """An SVG element. name: begins its ids; view: its viewBox; width: in pixels; drawn: content."""

    name: str
    view: str
    width: int
    drawn: Markup


def inline_svg(figure: Figure, name: str) -> Svg:
    """A figure as SVG for an HTML page, with text as text. name: unique on the page."""
    buffer = StringIO()
    unsaid = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", metadata=unsaid)
    _, view, drawn = re.split(r'<svg [^>]*viewBox="([^"]*)"[^>]*>', buffer.getvalue(), maxsplit=1)
    # This style would apply to the whole page; page.css has it for figures.
    drawn = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", drawn, count=1, flags=re.DOTALL)
    # Ids of groups and of equal images recur in several figures, and nothing refers to them.
    drawn = re.sub(r'(<g|<image [^>]*?) id="[^"]*"', r"\1", drawn)
    drawn = re.sub(r"\n\s*", "\n", drawn.replace("</svg>", ""))
    # Markup is safe, as matplotlib has escaped the texts.
    return Svg(name, view, round(_PIXELS * figure.get_figwidth()), Markup(drawn))
