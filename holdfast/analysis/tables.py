"""Every table that a study gives, and why it does not give the others."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
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

    Source: app:results, app:search.
    """
    runs = final_runs(study.cells)
    makers: dict[str, Callable[[], pd.DataFrame]] = {}
    if len(runs):
        makers |= {name: partial(make, runs) for name, make in _OF_RUNS.items()}
    makers |= {name: partial(make, study) for name, make in _OF_STUDIES.items()}
    made: dict[str, pd.DataFrame] = {}
    absent = {} if len(runs) else dict.fromkeys(_OF_RUNS, "no finished run")
    for name, make in makers.items():
        try:
            table = make()
        except HoldfastError as error:
            absent[name] = str(error)
            continue
        if len(table):
            made[name] = table
        else:
            absent[name] = _EMPTY.get(name, "no finished run")
    return Analysis(made, absent)


def markdown(table: pd.DataFrame) -> str:
    """A table to read: shares to three digits, p to two."""
    columns = [str(name) for name in table.columns]
    lines = [columns, [":--" if _words(table[name]) else "--:" for name in table.columns]]
    for row in table.to_dict("records"):
        lines.append([_text(str(name), value) for name, value in row.items()])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _factorials(runs: pd.DataFrame) -> list[Factorial]:
    """One a data set, of the factors that any of its compositions has."""
    results = []
    for dataset, part in runs.groupby("dataset", sort=False):
        factors = factors_of(part["method"])
        if not factors:
            raise HoldfastError(f"{dataset}: no composition of SI, SD, replay and merge")
        results.append(factorial(part, factors))
    return results


def _effects(runs: pd.DataFrame) -> pd.DataFrame:
    return _by_dataset((one.dataset, one.effects) for one in _factorials(runs))


def _models(runs: pd.DataFrame) -> pd.DataFrame:
    fields = ("dataset", "response", "n", "error_df", "rmse", "standard_error", "r2")
    return pd.DataFrame(
        [{field: getattr(one, field) for field in fields} for one in _factorials(runs)]
    )


def _survival(study: Study) -> pd.DataFrame:
    return bands(curves(study))


def _of_searches(make: Callable[[pd.DataFrame, pd.DataFrame], pd.DataFrame], study: Study) -> Any:
    runs = final_runs(study.cells)
    return _by_dataset(
        (dataset, make(trace, runs[runs["dataset"] == dataset]))
        for dataset, trace in study.traces.items()
    )


def _by_dataset(parts: Iterable[tuple[str, pd.DataFrame]]) -> pd.DataFrame:
    tables = [table.assign(dataset=dataset) for dataset, table in parts]
    if not tables:
        return pd.DataFrame()
    joined = pd.concat(tables, ignore_index=True)
    return joined[["dataset", *joined.columns.drop("dataset")]]


_OF_RUNS: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "configurations": configurations,
    "effects": _effects,
    "factorial_model": _models,
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
    "search_transfer": partial(_of_searches, search_transfer),
    "selection": partial(_of_searches, selection),
}
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
    return "" if value is None or value is pd.NA else str(value).replace("|", "\\|")
