"""Every table that a study gives, and why it does not give the others."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
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
from holdfast.analysis.percentiles import percentile_bars
from holdfast.analysis.ranks import ranks
from holdfast.analysis.replicates import one_dataset
from holdfast.analysis.search_transfer import search_transfer, selection
from holdfast.analysis.seed_spread import seed_spread, spread_groups, temperature_control
from holdfast.analysis.state_size import state_size
from holdfast.analysis.study import Study, final_runs
from holdfast.core.errors import HoldfastError


@dataclass(frozen=True)
class Analysis:
    """tables: by name, none of them empty; absent: by name, why the study does not give it."""

    tables: Mapping[str, pd.DataFrame]
    absent: Mapping[str, str]


def analyse(study: Study) -> Analysis:
    """Make every table that the study gives; what it lacks for another stops none.

    Nor does a data set stop another: ``absent`` names ``effects of llm_qa`` where the others have
    effects. Only ranks and the search's bars are over all data sets, or not at all.
    Source: app:results, app:search.
    """
    runs = final_runs(study.cells)
    made: dict[str, pd.DataFrame] = {}
    absent: dict[str, str] = {}
    for name, make in _TABLES.items():
        whole = name in _OVER_DATASETS
        parts = {"": study} if whole else {one: _part(study, one) for one in _datasets(study)}
        tables, refused = [], {}
        for dataset, part in parts.items():
            try:
                table = make(part)
            except HoldfastError as error:
                refused[f"{name} of {dataset}"] = str(error)
            else:
                tables += [table] if len(table) else []
        if tables:
            made[name] = pd.concat(tables, ignore_index=True)
            absent |= refused
        elif refused:
            absent[name] = "; ".join(dict.fromkeys(refused.values()))
        else:
            empty = _EMPTY.get(name, _NONE)
            absent[name] = empty if len(runs) or name in _OF_STUDIES else _NONE
    return Analysis(made, absent)


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


def _factorial(runs: pd.DataFrame) -> Factorial:
    """Of the factors that any composition of one data set has."""
    factors = factors_of(runs["method"])
    if not factors:
        raise HoldfastError(f"{one_dataset(runs)}: no composition of SI, SD, replay and merge")
    return factorial(runs, factors)


def _effects(runs: pd.DataFrame) -> pd.DataFrame:
    result = _factorial(runs)
    return _of(result.dataset, result.effects)


def _model(runs: pd.DataFrame) -> pd.DataFrame:
    fields = ("dataset", "response", "n", "error_df", "rmse", "standard_error", "r2")
    result = _factorial(runs)
    return pd.DataFrame([{field: getattr(result, field) for field in fields}])


def _survival(study: Study) -> pd.DataFrame:
    return bands(curves(study))


def _of_runs(make: Callable[[pd.DataFrame], pd.DataFrame], study: Study) -> pd.DataFrame:
    runs = final_runs(study.cells)
    return make(runs) if len(runs) else runs


def _of_search(
    make: Callable[[pd.DataFrame, pd.DataFrame], pd.DataFrame], study: Study
) -> pd.DataFrame:
    """A table of the one data set of a study that may have a search of it."""
    runs = final_runs(study.cells)
    for dataset, trace in study.traces.items():
        if runs.empty:
            raise HoldfastError(f"{dataset}: no final run to set beside the search; run a suite")
        return _of(dataset, make(trace, runs))
    return pd.DataFrame()


def _of(dataset: str, table: pd.DataFrame) -> pd.DataFrame:
    return pd.concat([pd.Series(dataset, table.index, name="dataset"), table], axis="columns")


_OF_RUNS: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "configurations": configurations,
    "effects": _effects,
    "factorial_model": _model,
    "synergy": synergy,
    "ranks": ranks,
    "build_up": build_up,
    "allocation_swap": allocation_swap,
    "acquisition": acquisition,
    "seed_spread": seed_spread,
    "seed_spread_by_data_anchor": spread_groups,
    "state_size": state_size,
    "capability": capability,
}
_OF_STUDIES: dict[str, Callable[[Study], pd.DataFrame]] = {
    "survival": _survival,
    "half_lives": lambda study: half_lives(_survival(study)),
    "temperature_control": temperature_control,
    "search_percentiles": lambda study: percentile_bars(study.traces),
    "search_transfer": partial(_of_search, search_transfer),
    "selection": partial(_of_search, selection),
}
_TABLES = {name: partial(_of_runs, make) for name, make in _OF_RUNS.items()} | _OF_STUDIES
_OVER_DATASETS = ("ranks", "search_percentiles")
_NONE = "no finished run outside a search"
_EMPTY = {
    "capability": "holdfast capability has not been asked of any final run",
    "acquisition": "every run passes the gate",
    "seed_spread": "a spread needs two seeds",
    "seed_spread_by_data_anchor": "a spread needs two seeds",
    "temperature_control": "no search that varies data.generation_temperature",
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
