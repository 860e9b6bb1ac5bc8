"""The paper's figures, as far as a study has the data for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import pandas as pd
from matplotlib.figure import Figure

from holdfast.analysis.study import Study
from holdfast.analysis.tables import Analysis
from holdfast.core.errors import HoldfastError
from holdfast.report.build_up_path import plot_build_up
from holdfast.report.capability_bars import plot_capability
from holdfast.report.choice import told_curves, told_rows
from holdfast.report.composition_grid import plot_compositions
from holdfast.report.item_groups import plot_item_groups
from holdfast.report.matrix_chain import plot_matrices
from holdfast.report.noise_grid import plot_noise
from holdfast.report.samples import plot_samples_by_method
from holdfast.report.search_bars import plot_search
from holdfast.report.survival import plot_survival


@dataclass(frozen=True)
class PaperFigures:
    """figures: by name; absent: by name of a figure, why the study cannot give it."""

    figures: Mapping[str, Figure]
    absent: Mapping[str, str]


def paper_figures(study: Study, analysis: Analysis) -> PaperFigures:
    """Draw the paper's figures, ``noise``, ``items`` and ``samples``, where there are the data.

    Source: fig:survival, fig:sho-results, fig:composition-results, fig:matrices, fig:app-buildup,
    fig:capability.
    """
    tables = analysis.tables
    makers: dict[str, tuple[str, Callable[[], Figure]]] = {
        "survival": (
            "survival",
            lambda: plot_survival(told_curves(tables["survival"], tables["configurations"])),
        ),
        "compositions": (
            "configurations",
            lambda: plot_compositions(tables["configurations"]),
        ),
        "noise": ("differences", lambda: plot_noise(tables["differences"])),
        "build_up": ("build_up", lambda: plot_build_up(tables["build_up"])),
        "search": ("search_percentiles", lambda: plot_search(tables["search_percentiles"])),
        "capability": ("capability", lambda: plot_capability(tables["capability"])),
        "items": ("items", lambda: plot_item_groups(told_rows(tables["items"]))),
        "samples": (
            "samples",
            lambda: plot_samples_by_method(told_rows(tables["samples"]), tables["samples_by_age"]),
        ),
        "matrices": (
            "configurations",
            lambda: plot_matrices(_of(study, tables["configurations"])),
        ),
    }
    drawn: dict[str, Figure] = {}
    absent: dict[str, str] = {}
    for name, (needed, make) in makers.items():
        if needed not in tables:
            absent[name] = analysis.absent[needed]
            continue
        try:
            drawn[name] = make()
        except HoldfastError as error:
            absent[name] = str(error)
    return PaperFigures(drawn, absent)


def _of(study: Study, table: pd.DataFrame) -> Study:
    """The study, restricted to the data sets in a table."""
    return replace(study, cells=study.cells[study.cells["dataset"].isin(table["dataset"])])
