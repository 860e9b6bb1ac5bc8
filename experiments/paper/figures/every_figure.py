"""All figures of the paper's study: those of any study, and those that only the paper has."""

from __future__ import annotations

from experiments.paper.figures.build_up_path import plot_build_up
from experiments.paper.figures.composition_grid import plot_compositions
from experiments.paper.figures.search_bars import plot_search
from holdfast.report.figures import FIGURES as OF_ANY_STUDY
from holdfast.report.figures import Figures

FIGURES: Figures = {
    **OF_ANY_STUDY,
    "compositions": (
        "configurations",
        lambda _, tables: plot_compositions(tables["configurations"]),
    ),
    "build_up": ("build_up", lambda _, tables: plot_build_up(tables["build_up"])),
    "search": ("search_percentiles", lambda _, tables: plot_search(tables["search_percentiles"])),
}
