"""The seeds of one data set as replicates: none missing, none duplicated, all comparable."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection
from typing import Any

import pandas as pd

from holdfast.analysis.study import refuse_repeated
from holdfast.core.errors import HoldfastError
from holdfast.core.mechanisms import tag_of

_NAMED = 4  # settings that an error lists


def replicates(
    cells: pd.DataFrame, methods: Collection[str], response: str = "final"
) -> pd.DataFrame:
    """The response of every method (rows, in the order given) and seed (columns, increasing).

    cells: of one data set of a study; cells of other methods are ignored. response: a column of
    ``cells``. Every method needs every seed that any of them has.
    Raises HoldfastError, naming the cell where there is one, for several data sets, several
    settings of a method, a missing or duplicated cell, an undefined response, and cells of
    different horizons or task orders.
    """
    dataset = one_dataset(cells)
    if response not in cells:
        raise HoldfastError(f"{dataset}: the cells have no {response}; use one of their columns")
    chosen = cells[cells["method"].isin(list(methods))]
    several = [name for name in cells["method"] if tag_of(name) != name and tag_of(name) in methods]
    if several:
        raise HoldfastError(f"{dataset}: {_settings_of(tag_of(several[0]), several)}")
    if chosen.empty:
        raise HoldfastError(f"{dataset}: none of {', '.join(methods)} has been learned")
    refuse_repeated(chosen)
    _refuse_mixed(dataset, chosen, "horizon", "horizons")
    _refuse_mixed(dataset, chosen, "order_seed", "task orders")
    table = chosen.pivot(index="method", columns="seed", values=response)
    table = table.reindex(index=list(methods)).sort_index(axis="columns")
    empty = [(row, seed) for row in table.index for seed in table if pd.isna(table.at[row, seed])]
    learned = set(zip(chosen["method"], chosen["seed"], strict=True))
    lacking = [pair for pair in empty if pair not in learned]
    if lacking:
        method, seed = lacking[0]
        more = f" (and {len(lacking) - 1} more are missing)" if len(lacking) > 1 else ""
        raise HoldfastError(
            f"{dataset}: {method} has no cell with seed {seed}{more}; "
            "finish it, or leave that seed or method out of all"
        )
    if empty:
        method, seed = empty[0]
        raise HoldfastError(
            f"{dataset}: {response} of {method} with seed {seed} is not defined; "
            "learn more tasks, or choose another metric"
        )
    return table


def one_dataset(cells: pd.DataFrame) -> str:
    """The name of the only data set in these cells; HoldfastError if there are several, or none."""
    names = list(cells["dataset"].unique())
    if not names:
        raise HoldfastError("the study has no finished cell; run it first")
    if len(names) > 1:
        raise HoldfastError(
            f"the cells are of {' and '.join(names)}; choose one: cells[cells.dataset == ...]"
        )
    return str(names[0])


def by_dataset(cells: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The cells of each data set, in order of appearance."""
    return {str(name): part for name, part in cells.groupby("dataset", sort=False)}


def _settings_of(tag: str, several: Collection[str]) -> str:
    """The error for a method with several settings: the options that select each of them."""
    names = [name for name in dict.fromkeys(several) if tag_of(name) == tag]
    settings = [name.partition(" ")[2] for name in names]
    # A value may have spaces, a key has none.
    keys = [re.split(r" (?=[\w.]+=)", setting) for setting in settings]
    options = [shlex.join(part for key in each for part in ("--where", key)) for each in keys]
    more = f", and {len(settings) - _NAMED} more" if len(settings) > _NAMED else ""
    return (
        f"{tag} has been learned with {len(settings)} settings; this is made for one at a time: "
        f"analyse again with {' or with '.join(options[:_NAMED])}{more}"
    )


def _refuse_mixed(dataset: str, cells: pd.DataFrame, column: str, plural: str) -> None:
    first: Any = cells.iloc[0]
    same = cells[column].isna() if pd.isna(first[column]) else cells[column] == first[column]
    others = cells[~same.fillna(False).astype(bool)]
    if len(others):
        other = others.iloc[0]
        raise HoldfastError(
            f"{dataset}: {first['method']} with seed {first['seed']} and {other['method']} with "
            f"seed {other['seed']} have different {plural}, {_order(first[column])} and "
            f"{_order(other[column])}; select one of them"
        )


def _order(value: Any) -> str:
    return "the stream's own" if pd.isna(value) else str(value)
