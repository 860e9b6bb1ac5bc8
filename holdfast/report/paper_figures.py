"""The paper's figures, as far as a study gives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd
from matplotlib.figure import Figure

from holdfast.analysis.study import Study
from holdfast.analysis.tables import Analysis
from holdfast.core.errors import HoldfastError
from holdfast.core.mechanisms import ANCHORS, VANILLA
from holdfast.report.build_up_path import build_up_path
from holdfast.report.capability_bars import capability_bars
from holdfast.report.composition_grid import composition_grid
from holdfast.report.matrix_chain import CHAIN, matrix_chain, median_seeds
from holdfast.report.search_bars import search_bars
from holdfast.report.survival import survival

_CURVES = 6  # as many as can be told apart


@dataclass(frozen=True)
class PaperFigures:
    """figures: by name; absent: by name, why the study does not give it."""

    figures: Mapping[str, Figure]
    absent: Mapping[str, str]


def paper_figures(study: Study, analysis: Analysis) -> PaperFigures:
    """Draw every figure that a study and its tables give.

    Source: fig:survival, fig:sho-results, fig:composition-results, fig:matrices, fig:app-buildup,
    fig:capability.
    """
    tables = analysis.tables
    learned = list(tables["configurations"]["method"]) if "configurations" in tables else []
    makers: dict[str, tuple[str, Callable[[], Figure]]] = {
        "survival": ("survival", lambda: survival(tables["survival"], telling(learned))),
        "compositions": (
            "configurations",
            lambda: composition_grid(tables["configurations"]),
        ),
        "build_up": ("build_up", lambda: build_up_path(tables["build_up"])),
        "search": ("search_percentiles", lambda: search_bars(tables["search_percentiles"])),
        "capability": ("capability", lambda: _capability(tables["capability"])),
        "matrices": (
            "configurations",
            lambda: _matrices(_of(study, tables["configurations"]), learned),
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


def telling(methods: Sequence[str]) -> list[str]:
    """The few methods whose curves tell most: the best ones, vanilla, the best single anchor.

    methods: the best first.
    """
    alone = next((method for method in methods if method in ANCHORS), None)
    fixed = [method for method in (VANILLA, alone) if method in methods]
    best = [method for method in dict.fromkeys(methods) if method not in fixed]
    chosen = {*fixed, *best[: _CURVES - len(fixed)]}
    return [method for method in dict.fromkeys(methods) if method in chosen]


def _capability(table: pd.DataFrame) -> Figure:
    """Of the last boundary that was measured, the suites that have right answers."""
    answered = table[table["unit"] == "share"]
    last = answered.groupby(["dataset", "method"])["after_task"].transform("max")
    scores = answered[answered["after_task"] == last]
    base = scores.dropna(subset="before").groupby("suite")["before"].mean()
    named = scores.rename(columns={"suite": "benchmark", "value": "score"})
    return capability_bars(named, {str(name): float(value) for name, value in base.items()})


def _of(study: Study, table: pd.DataFrame) -> Study:
    """The data sets of a study that a table has."""
    return replace(study, cells=study.cells[study.cells["dataset"].isin(table["dataset"])])


def _matrices(study: Study, learned: Sequence[str]) -> Figure:
    """Along the paper's chain, or of what there is."""
    chain = [method for method in CHAIN if method in learned]
    methods = chain if len(chain) > 1 else telling(learned)
    return matrix_chain(median_seeds(study, methods), methods)
