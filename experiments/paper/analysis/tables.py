"""All tables of the paper's study: those of any study, and those that only the paper has."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence

import pandas as pd

from experiments.paper.analysis.factorial import (
    FACTORS,
    Factorial,
    compositions,
    effect_contrasts,
    factorial,
    synergy,
)
from experiments.paper.analysis.rankings import allocation_swap, build_up, ranks
from experiments.paper.analysis.replicates import one_dataset
from experiments.paper.analysis.search import percentile_bars, search_transfer, selection
from experiments.paper.analysis.single_runs import (
    acquisition,
    controls,
    datasets,
    spread_groups,
    temperature_control,
)
from experiments.paper.analysis.state_size import state_size
from holdfast.analysis import tables as of_any_study
from holdfast.analysis.study import Study, at_horizon
from holdfast.analysis.tables import ONE_SEED, StudyPart, Table
from holdfast.analysis.uncertainty import bounds, by_seed, contrasted
from holdfast.core.errors import HoldfastError
from holdfast.core.mechanisms import VANILLA, has, tag_of

_NO_SEARCH = "no search"


def factors_of(methods: Iterable[str]) -> list[str]:
    """The factors that any of the methods has, in the order of ``FACTORS``.

    methods: with settings or without; those outside the paper's factorial are ignored.
    """
    composed = [method for method in methods if tag_of(method) in compositions()]
    return [factor for factor in FACTORS if any(has(method, factor) for method in composed)]


def with_intervals(
    table: pd.DataFrame, study: Study, contrasts: Sequence[Mapping[str, float]]
) -> pd.DataFrame:
    """Add ``low`` and ``high``, the interval of the difference in Final that each row states.

    study: of the table's only data set; contrasts: for each row, the weight of each method's mean
    in the difference. NaN if these methods have fewer than two seeds in common.
    """
    values = by_seed(at_horizon(study.cells), study.matrices, "final")
    pairs = [bounds(contrasted(values, contrast)) for contrast in contrasts]
    low, high = zip(*pairs, strict=True) if pairs else ((), ())
    return table.assign(low=low, high=high)


def _factorial(part: StudyPart) -> Factorial:
    """The factorial of all factors that the compositions of the data set have."""
    factors = factors_of(part.runs["method"])
    if not factors:
        raise HoldfastError(f"{one_dataset(part.runs)}: no composition of SI, SD, replay and merge")
    return factorial(part.runs, factors)


def _effects(part: StudyPart) -> pd.DataFrame:
    result = _factorial(part)
    contrasts = effect_contrasts(result.effects["term"], result.factors)
    return _named(result.dataset, with_intervals(result.effects, part.study, contrasts))


def _model(part: StudyPart) -> pd.DataFrame:
    result = _factorial(part)
    fields = ("dataset", "response", "n", "error_df", "rmse", "standard_error", "r2")
    return pd.DataFrame([{field: getattr(result, field) for field in fields}])


def _synergy(part: StudyPart) -> pd.DataFrame:
    table = synergy(part.runs)
    more = {VANILLA: 1.0, "replay": -1.0, "merge": -1.0, "replay_merge": 1.0}
    table["difference"] = table["together"] - table["apart"]
    return with_intervals(table, part.study, [more] * len(table))


def _build_up(part: StudyPart) -> pd.DataFrame:
    table = build_up(part.runs)
    steps = itertools.pairwise(table["method"])
    gains: list[dict[str, float]] = [{}, *({now: 1.0, before: -1.0} for before, now in steps)]
    return with_intervals(table.assign(gain=table["final"].diff()), part.study, gains)


def _allocation_swap(part: StudyPart) -> pd.DataFrame:
    table = allocation_swap(part.runs)
    pairs = zip(table["swapped"], table["merged"], strict=True)
    changes = [{swapped: 1.0, merged: -1.0} for swapped, merged in pairs]
    return with_intervals(table, part.study, changes)


def _beside_search(
    part: StudyPart, make: Callable[[pd.DataFrame, pd.DataFrame], pd.DataFrame]
) -> pd.DataFrame:
    """A table made from a data set's search and its final runs; empty without a search."""
    for dataset, trace in part.study.traces.items():
        if part.runs.empty:
            raise HoldfastError(f"{dataset}: no final run to set beside the search; run a suite")
        return _named(dataset, make(trace, part.runs))
    return pd.DataFrame()


def _named(dataset: str, table: pd.DataFrame) -> pd.DataFrame:
    return pd.concat([pd.Series(dataset, table.index, name="dataset"), table], axis="columns")


TABLES = (
    *of_any_study.TABLES,
    Table("datasets", lambda part: datasets(part.study)),
    Table("controls", lambda part: controls(part.study)),
    Table("effects", _effects),
    Table("factorial_model", _model),
    Table("synergy", _synergy),
    Table("ranks", lambda part: ranks(part.runs), across=True),
    Table("build_up", _build_up),
    Table("allocation_swap", _allocation_swap),
    Table("acquisition", lambda part: acquisition(part.study.cells), "every run passes the gate"),
    Table("seed_spread_by_data_anchor", lambda part: spread_groups(part.study.cells), ONE_SEED),
    Table("state_size", lambda part: state_size(part.study.cells)),
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
        lambda part: _beside_search(part, search_transfer),
        _NO_SEARCH,
        of_search=True,
    ),
    Table("selection", lambda part: _beside_search(part, selection), _NO_SEARCH, of_search=True),
)


def analyse(study: Study) -> of_any_study.Analysis:
    """Make every table of the paper's study for which a study has the runs.

    Source: app:results, app:search.
    """
    return of_any_study.analyse(study, TABLES)
