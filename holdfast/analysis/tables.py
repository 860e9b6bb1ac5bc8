"""Every table that a study gives, and why it does not give the others."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pandas as pd

from holdfast.analysis.acquisition import acquisition
from holdfast.analysis.allocation_swap import allocation_swap
from holdfast.analysis.build_up import build_up
from holdfast.analysis.capability import capability
from holdfast.analysis.composition import factors_of
from holdfast.analysis.configurations import configurations
from holdfast.analysis.controls import controls, datasets
from holdfast.analysis.curves import bands, curves, half_lives
from holdfast.analysis.factorial import Factorial, factorial, synergy
from holdfast.analysis.horizon import at_horizon
from holdfast.analysis.item_tables import ItemTables, item_tables
from holdfast.analysis.percentiles import percentile_bars
from holdfast.analysis.ranks import ranks
from holdfast.analysis.replicates import one_dataset
from holdfast.analysis.search_transfer import search_transfer, selection
from holdfast.analysis.seed_spread import seed_spread, spread_groups, temperature_control
from holdfast.analysis.state_size import state_size
from holdfast.analysis.study import Study
from holdfast.analysis.uncertainty import (
    HALF_LIFE,
    differences,
    effect_contrasts,
    means,
    with_intervals,
)
from holdfast.core.errors import HoldfastError, did_you_mean
from holdfast.core.mechanisms import VANILLA


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


class _Made(dict[str, pd.DataFrame]):
    """Tables by name; for one that the study does not give, HoldfastError says why."""

    def __init__(self, tables: Mapping[str, pd.DataFrame], absent: Mapping[str, str]) -> None:
        super().__init__(tables)
        self._absent = absent

    def __missing__(self, name: str) -> pd.DataFrame:
        why = self._absent.get(name) or did_you_mean(name, [*self, *self._absent])
        raise HoldfastError(f"no table {name}: {why}")


def analyse(study: Study) -> Analysis:
    """Make every table that the study gives; what it lacks for another stops none.

    Nor does a data set stop another: ``absent`` names ``effects of llm_qa`` where the others have
    effects. Only ranks and the search's bars are over all data sets, or not at all.
    Source: app:results, app:search.
    """
    parts = {one: _Part(_of_dataset(study, one)) for one in _datasets(study)}
    every = {"": _Part(study)}
    learned = not every[""].runs.empty
    made: dict[str, pd.DataFrame] = {}
    absent: dict[str, str] = {}
    refused: dict[tuple[str, str], str] = {}
    for table in TABLES:
        found, reasons = [], {}
        for dataset, part in (every if table.across else parts).items():
            if part.runs.empty and not table.of_search:
                continue
            try:
                found.append(table.make(part))
            except HoldfastError as error:
                reasons[dataset] = str(error)
        found = [one for one in found if len(one)]
        refused |= {(table.name, dataset): why for dataset, why in reasons.items()}
        if found:
            made[table.name] = pd.concat(found, ignore_index=True)
            absent |= {f"{table.name} of {dataset}": why for dataset, why in reasons.items()}
        elif reasons:
            absent[table.name] = "; ".join(dict.fromkeys(reasons.values()))
        else:
            absent[table.name] = table.empty if learned or table.of_search else _NO_RUN
    return Analysis(_Made(made, absent), absent, refused)


def markdown(table: pd.DataFrame) -> str:
    """A table to read: shares to three digits, p to two."""
    columns = [str(name) for name in table.columns]
    lines = [columns, [":--" if _words(table[name]) else "--:" for name in table.columns]]
    for row in table.to_dict("records"):
        lines.append([_text(str(name), value) for name, value in row.items()])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _datasets(study: Study) -> list[str]:
    return list(dict.fromkeys([*study.cells["dataset"], *study.traces]))


def _of_dataset(study: Study, dataset: str) -> Study:
    """What a study has of one data set."""
    traces = {name: trace for name, trace in study.traces.items() if name == dataset}
    return replace(study, cells=study.cells[study.cells["dataset"] == dataset], traces=traces)


class _Part:
    """A study of one data set or of all, and what several tables are made of."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self.cells = study.cells

    @cached_property
    def runs(self) -> pd.DataFrame:
        return at_horizon(self.cells)

    @cached_property
    def survival(self) -> pd.DataFrame:
        return bands(curves(self.study))

    @cached_property
    def kept(self) -> ItemTables:
        return item_tables(self.runs)

    @cached_property
    def factorial(self) -> Factorial:
        """Of the factors that any composition of the one data set has."""
        factors = factors_of(self.runs["method"])
        if not factors:
            raise HoldfastError(
                f"{one_dataset(self.runs)}: no composition of SI, SD, replay and merge"
            )
        return factorial(self.runs, factors)

    @cached_property
    def means(self) -> pd.DataFrame:
        return means(self.study)

    # Tables of differences have the interval of each beside it.

    @property
    def half_lives(self) -> pd.DataFrame:
        table = half_lives(self.survival)
        own = self.means[self.means["metric"] == HALF_LIFE]
        return table.merge(own[["dataset", "method", "low", "high", "seeds"]], how="left")

    @property
    def effects(self) -> pd.DataFrame:
        result = self.factorial
        contrasts = effect_contrasts(result.effects["term"], result.factors)
        return _named(result.dataset, with_intervals(result.effects, self.study, contrasts))

    @property
    def synergy(self) -> pd.DataFrame:
        table = synergy(self.runs)
        more = {VANILLA: 1.0, "replay": -1.0, "merge": -1.0, "replay_merge": 1.0}
        table["difference"] = table["together"] - table["apart"]
        return with_intervals(table, self.study, [more] * len(table))

    @property
    def build_up(self) -> pd.DataFrame:
        table = build_up(self.runs)
        steps = itertools.pairwise(table["method"])
        gains: list[dict[str, float]] = [{}, *({now: 1.0, before: -1.0} for before, now in steps)]
        return with_intervals(table.assign(gain=table["final"].diff()), self.study, gains)

    @property
    def allocation_swap(self) -> pd.DataFrame:
        table = allocation_swap(self.runs)
        pairs = zip(table["swapped"], table["merged"], strict=True)
        changes = [{swapped: 1.0, merged: -1.0} for swapped, merged in pairs]
        return with_intervals(table, self.study, changes)

    def beside_search(self, make: _OfSearch) -> pd.DataFrame:
        """A table of a search and the final runs; empty for a data set without a search."""
        for dataset, trace in self.study.traces.items():
            if self.runs.empty:
                raise HoldfastError(
                    f"{dataset}: no final run to set beside the search; run a suite"
                )
            return _named(dataset, make(trace, self.runs))
        return pd.DataFrame()


def _model(result: Factorial) -> pd.DataFrame:
    fields = ("dataset", "response", "n", "error_df", "rmse", "standard_error", "r2")
    return pd.DataFrame([{field: getattr(result, field) for field in fields}])


def _named(dataset: str, table: pd.DataFrame) -> pd.DataFrame:
    return pd.concat([pd.Series(dataset, table.index, name="dataset"), table], axis="columns")


_OfSearch = Callable[[pd.DataFrame, pd.DataFrame], pd.DataFrame]
_NO_RUN = "no finished run outside a search"
_ONE_SEED = "a spread needs two seeds"
_NO_SEARCH = "no search"
_NO_ITEMS = "no finished run keeps verdicts by item (evaluation.items=true)"
_NO_SAMPLES = "no finished run with replay keeps its samples (sampling.keep=true)"


@dataclass(frozen=True)
class Table:
    """One table of an analysis.

    name: of its files; make: from a data set, or from all at once where ``across``; empty: why
    there is none where nobody raised; of_search: whether it needs a search, not only final runs.
    """

    name: str
    make: Callable[[_Part], pd.DataFrame]
    empty: str = _NO_RUN
    of_search: bool = False
    across: bool = False


TABLES = (
    Table("datasets", lambda part: datasets(part.study)),
    Table("configurations", lambda part: configurations(part.cells)),
    Table("means", lambda part: part.means),
    Table("controls", lambda part: controls(part.study)),
    Table(
        "differences",
        lambda part: differences(part.study),
        "a difference needs two methods and two seeds",
    ),
    Table("effects", lambda part: part.effects),
    Table("factorial_model", lambda part: _model(part.factorial)),
    Table("synergy", lambda part: part.synergy),
    Table("ranks", lambda part: ranks(part.runs), across=True),
    Table("build_up", lambda part: part.build_up),
    Table("allocation_swap", lambda part: part.allocation_swap),
    Table("acquisition", lambda part: acquisition(part.cells), "every run passes the gate"),
    Table("seed_spread", lambda part: seed_spread(part.cells), _ONE_SEED),
    Table("seed_spread_by_data_anchor", lambda part: spread_groups(part.cells), _ONE_SEED),
    Table("state_size", lambda part: state_size(part.cells)),
    Table(
        "capability",
        lambda part: capability(part.cells),
        "holdfast capability has not been asked of any final run",
    ),
    Table("survival", lambda part: part.survival),
    Table("half_lives", lambda part: part.half_lives),
    Table("items", lambda part: part.kept.items, _NO_ITEMS),
    Table("samples", lambda part: part.kept.samples, _NO_SAMPLES),
    Table("samples_by_age", lambda part: part.kept.samples_by_age, _NO_SAMPLES),
    Table(
        "temperature_control",
        lambda part: temperature_control(part.study),
        "no search that varies sampling.temperature",
        of_search=True,
    ),
    Table(
        "search_percentiles",
        lambda part: percentile_bars(part.study.traces),
        _NO_SEARCH,
        of_search=True,
        across=True,
    ),
    Table(
        "search_transfer",
        lambda part: part.beside_search(search_transfer),
        _NO_SEARCH,
        of_search=True,
    ),
    Table("selection", lambda part: part.beside_search(selection), _NO_SEARCH, of_search=True),
)


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
