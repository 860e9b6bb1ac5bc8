"""Every table that a study gives, and why it does not give the others."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pandas as pd

from holdfast.analysis.acquisition import acquisition
from holdfast.analysis.allocation_swap import allocation_swap
from holdfast.analysis.build_up import build_up
from holdfast.analysis.capability import capability
from holdfast.analysis.composition import factors_of
from holdfast.analysis.configurations import configurations
from holdfast.analysis.curves import bands, curves, half_lives
from holdfast.analysis.factorial import Factorial, factorial, synergy
from holdfast.analysis.horizon import at_horizon
from holdfast.analysis.percentiles import percentile_bars
from holdfast.analysis.ranks import ranks
from holdfast.analysis.replicates import one_dataset
from holdfast.analysis.search_transfer import search_transfer, selection
from holdfast.analysis.seed_spread import seed_spread, spread_groups, temperature_control
from holdfast.analysis.state_size import state_size
from holdfast.analysis.study import Study
from holdfast.core.errors import HoldfastError


@dataclass(frozen=True)
class Analysis:
    """tables: by name, the data sets below each other, none empty; absent: by name, why the study
    does not give it; refused: by name and data set, why that data set has no part in it.
    """

    tables: Mapping[str, pd.DataFrame]
    absent: Mapping[str, str]
    refused: Mapping[tuple[str, str], str]

    def of(self, dataset: str, name: str) -> pd.DataFrame:
        """One data set's part of a table that has data sets; empty where it has none."""
        if name not in self.tables:
            return pd.DataFrame()
        table = self.tables[name]
        return table[table["dataset"] == dataset].reset_index(drop=True)


def analyse(study: Study) -> Analysis:
    """Make every table that the study gives; what it lacks for another stops none.

    Nor does a data set stop another: ``absent`` names ``effects of llm_qa`` where the others have
    effects. Only ranks and the search's bars are over all data sets, or not at all.
    Source: app:results, app:search.
    """
    parts = {one: _makers(_part(study, one)) for one in _datasets(study)}
    over_datasets = _makers_over_datasets(study)
    learned = len(at_horizon(study.cells)) > 0
    made: dict[str, pd.DataFrame] = {}
    absent: dict[str, str] = {}
    refused: dict[tuple[str, str], str] = {}
    for name in _TABLES:
        makers = {"": over_datasets} if name in over_datasets else parts
        tables, reasons = [], {}
        for dataset, make in makers.items():
            try:
                table = make[name]()
            except HoldfastError as error:
                reasons[dataset] = str(error)
            else:
                tables += [table] if len(table) else []
        refused |= {(name, dataset): why for dataset, why in reasons.items()}
        if tables:
            made[name] = pd.concat(tables, ignore_index=True)
            absent |= {f"{name} of {dataset}": why for dataset, why in reasons.items()}
        elif reasons:
            absent[name] = "; ".join(dict.fromkeys(reasons.values()))
        else:
            absent[name] = _EMPTY.get(name, _NONE) if learned or name in _OF_SEARCHES else _NONE
    return Analysis(made, absent, refused)


def markdown(table: pd.DataFrame) -> str:
    """A table to read: shares to three digits, p to two."""
    columns = [str(name) for name in table.columns]
    lines = [columns, [":--" if _words(table[name]) else "--:" for name in table.columns]]
    for row in table.to_dict("records"):
        lines.append([_text(str(name), value) for name, value in row.items()])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _datasets(study: Study) -> list[str]:
    return list(dict.fromkeys([*study.cells["dataset"], *study.traces]))


def _part(study: Study, dataset: str) -> Study:
    """What a study has of one data set."""
    traces = {name: trace for name, trace in study.traces.items() if name == dataset}
    return replace(study, cells=study.cells[study.cells["dataset"] == dataset], traces=traces)


def _makers(study: Study) -> dict[str, _Maker]:
    """The tables of the one data set of a study."""
    cells = study.cells
    runs = at_horizon(cells)
    # A table that another is made of is made once.
    survival = cache(lambda: bands(curves(study)))
    model = cache(lambda: _factorial(runs))
    of_runs: dict[str, _Maker] = {
        "configurations": lambda: configurations(cells),
        "effects": lambda: _of(model().dataset, model().effects),
        "factorial_model": lambda: _model(model()),
        "synergy": lambda: synergy(runs),
        "build_up": lambda: build_up(runs),
        "allocation_swap": lambda: allocation_swap(runs),
        "acquisition": lambda: acquisition(cells),
        "seed_spread": lambda: seed_spread(cells),
        "seed_spread_by_data_anchor": lambda: spread_groups(cells),
        "state_size": lambda: state_size(cells),
        "capability": lambda: capability(cells),
    }
    if runs.empty:
        of_runs = dict.fromkeys(of_runs, lambda: runs)
    return {
        **of_runs,
        "survival": survival,
        "half_lives": lambda: half_lives(survival()),
        "temperature_control": lambda: temperature_control(study),
        "search_transfer": lambda: _of_search(search_transfer, study, runs),
        "selection": lambda: _of_search(selection, study, runs),
    }


def _makers_over_datasets(study: Study) -> dict[str, _Maker]:
    runs = at_horizon(study.cells)
    return {
        "ranks": lambda: ranks(runs) if len(runs) else runs,
        "search_percentiles": lambda: percentile_bars(study.traces),
    }


def _factorial(runs: pd.DataFrame) -> Factorial:
    """Of the factors that any composition of one data set has."""
    factors = factors_of(runs["method"])
    if not factors:
        raise HoldfastError(f"{one_dataset(runs)}: no composition of SI, SD, replay and merge")
    return factorial(runs, factors)


def _model(result: Factorial) -> pd.DataFrame:
    fields = ("dataset", "response", "n", "error_df", "rmse", "standard_error", "r2")
    return pd.DataFrame([{field: getattr(result, field) for field in fields}])


def _of_search(
    make: Callable[[pd.DataFrame, pd.DataFrame], pd.DataFrame], study: Study, runs: pd.DataFrame
) -> pd.DataFrame:
    """A table of the one data set of a study that may have a search of it."""
    for dataset, trace in study.traces.items():
        if runs.empty:
            raise HoldfastError(f"{dataset}: no final run to set beside the search; run a suite")
        return _of(dataset, make(trace, runs))
    return pd.DataFrame()


def _of(dataset: str, table: pd.DataFrame) -> pd.DataFrame:
    return pd.concat([pd.Series(dataset, table.index, name="dataset"), table], axis="columns")


_Maker = Callable[[], pd.DataFrame]
_TABLES = (
    "configurations",
    "effects",
    "factorial_model",
    "synergy",
    "ranks",
    "build_up",
    "allocation_swap",
    "acquisition",
    "seed_spread",
    "seed_spread_by_data_anchor",
    "state_size",
    "capability",
    "survival",
    "half_lives",
    "temperature_control",
    "search_percentiles",
    "search_transfer",
    "selection",
)
_OF_SEARCHES = ("temperature_control", "search_percentiles", "search_transfer", "selection")
_NONE = "no finished run outside a search"
_EMPTY = {
    "capability": "holdfast capability has not been asked of any final run",
    "acquisition": "every run passes the gate",
    "seed_spread": "a spread needs two seeds",
    "seed_spread_by_data_anchor": "a spread needs two seeds",
    "temperature_control": "no search that varies sampling.temperature",
    "search_percentiles": "no search",
    "search_transfer": "no search",
    "selection": "no search",
}


def _words(column: pd.Series) -> bool:
    return not pd.api.types.is_numeric_dtype(column)


def _text(name: str, value: Any) -> str:
    if isinstance(value, float):
        if math.isnan(value):
            return ""
        if name == "p":
            return f"{value:.2g}"
        return f"{value:.0f}" if name.endswith("bytes") else f"{value:.3f}"
    if value is None or value is pd.NA:
        return ""
    return " ".join(str(value).split()).replace("|", "\\|")  # a line is a row
