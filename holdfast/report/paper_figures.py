"""The paper's figures, as far as a study has the data for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd
from matplotlib.figure import Figure

from holdfast.analysis.study import Study
from holdfast.analysis.tables import Analysis
from holdfast.core.errors import HoldfastError
from holdfast.core.mechanisms import ALLOCATIONS, ANCHORS, VANILLA
from holdfast.report.build_up_path import build_up_path
from holdfast.report.capability_bars import capability_bars
from holdfast.report.composition_grid import composition_grid
from holdfast.report.item_groups import item_groups
from holdfast.report.matrix_chain import CHAIN, matrix_chain, median_seeds
from holdfast.report.noise_grid import noise_grid
from holdfast.report.samples import samples_by_method
from holdfast.report.search_bars import search_bars
from holdfast.report.survival import survival

_CURVES = 6  # the most curves that a reader can distinguish


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
    learned = list(tables["configurations"]["method"]) if "configurations" in tables else []
    makers: dict[str, tuple[str, Callable[[], Figure]]] = {
        "survival": (
            "survival",
            lambda: survival(told_curves(tables["survival"], tables["configurations"])),
        ),
        "compositions": (
            "configurations",
            lambda: composition_grid(tables["configurations"]),
        ),
        "noise": ("differences", lambda: noise_grid(tables["differences"])),
        "build_up": ("build_up", lambda: build_up_path(tables["build_up"])),
        "search": ("search_percentiles", lambda: search_bars(tables["search_percentiles"])),
        "capability": ("capability", lambda: _capability(tables["capability"])),
        "items": ("items", lambda: item_groups(_told(tables["items"]))),
        "samples": (
            "samples",
            lambda: samples_by_method(_told(tables["samples"]), tables["samples_by_age"]),
        ),
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


def told_curves(bands: pd.DataFrame, configurations: pd.DataFrame) -> pd.DataFrame:
    """The curves of each data set that the figure shows.

    bands: from :func:`holdfast.analysis.curves.bands`.

    Of one data set a few, as :func:`telling` chooses. Of several data sets, in each one: vanilla,
    its strongest standalone mechanism, its strongest composition, and the method of the highest
    mean Final over all data sets.
    configurations: the table of that name, the highest Final of a data set first.
    Source: fig:survival.
    """
    ranked = {
        str(dataset): list(part["method"])
        for dataset, part in configurations.groupby("dataset", sort=False)
    }
    finals = configurations.pivot(index="method", columns="dataset", values="final").dropna()
    leader = [str(finals.mean(axis="columns").idxmax())] if len(ranked) > 1 and len(finals) else []
    most = _CURVES if len(ranked) == 1 else 3
    chosen = {name: {*telling(methods, most), *leader} for name, methods in ranked.items()}
    shown = [
        method in chosen[dataset]
        for dataset, method in zip(bands["dataset"], bands["method"], strict=True)
    ]
    return bands[shown]


def telling(methods: Sequence[str], most: int = _CURVES) -> list[str]:
    """So many methods of a data set: vanilla, the best standalone mechanism, the best others.

    methods: the best first. A standalone mechanism is one anchor, or one rule but the shared one.
    """
    alone = next((method for method in methods if method in (*ANCHORS, *ALLOCATIONS)), None)
    fixed = [method for method in (VANILLA, alone) if method in methods]
    best = [method for method in dict.fromkeys(methods) if method not in fixed]
    chosen = {*fixed, *best[: most - len(fixed)]}
    return [method for method in dict.fromkeys(methods) if method in chosen]


def _told(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of the methods of each data set that a figure has room for.

    table: methods in the order of their Final.
    """
    chosen = {
        dataset: telling(list(dict.fromkeys(part["method"])))
        for dataset, part in table.groupby("dataset", sort=False)
    }
    pairs = zip(table["dataset"], table["method"], strict=True)
    return table[[method in chosen[dataset] for dataset, method in pairs]]


def _capability(table: pd.DataFrame) -> Figure:
    """Capability after each method's last measured task, of suites with right answers."""
    answered = table[table["unit"] == "share"]
    last = answered.groupby(["dataset", "method"])["after_task"].transform("max")
    scores = answered[answered["after_task"] == last]
    base = scores.dropna(subset="before").groupby("suite")["before"].mean()
    named = scores.rename(columns={"suite": "benchmark", "value": "score"})
    return capability_bars(named, {str(name): float(value) for name, value in base.items()})


def _of(study: Study, table: pd.DataFrame) -> Study:
    """The study, restricted to the data sets in a table."""
    return replace(study, cells=study.cells[study.cells["dataset"].isin(table["dataset"])])


def _matrices(study: Study, learned: Sequence[str]) -> Figure:
    """The matrices of the paper's chain if two of its methods were run, or else of a few others."""
    chain = [method for method in CHAIN if method in learned]
    methods = chain if len(chain) > 1 else telling(learned)
    return matrix_chain(median_seeds(study, methods), methods)
