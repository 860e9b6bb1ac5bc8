"""A study's tables of items and of samples, of the runs that kept them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from holdfast.analysis.items import Items, has_items, read_items, recall_groups
from holdfast.analysis.samples import rehearsed_ages, rehearsed_tasks, sampled

_OF_METHOD = ["dataset", "method", "seeds"]


@dataclass(frozen=True)
class ItemTables:
    """items: of each method, what is recalled by age, length and rehearsal, as
    :func:`holdfast.analysis.items.recall_groups` gives it over its seeds; samples: of each run,
    who is in its samples before each task, as :func:`holdfast.analysis.samples.sampled`;
    samples_by_age: of each method, the share that asks a task, by its age.

    The first and the last have ``seeds``: how many of them kept what is counted. Empty where no run
    did.
    """

    items: pd.DataFrame
    samples: pd.DataFrame
    samples_by_age: pd.DataFrame


def item_tables(runs: pd.DataFrame) -> ItemTables:
    """The tables of these runs, at the horizon that each has here.

    runs: of a study, one data set. The method with the highest Final comes first.
    Raises HoldfastError as :func:`holdfast.analysis.items.read_items`.
    """
    groups, samples, ages = [], [], []
    finals = runs.groupby("method", sort=False)["final"].mean()
    for method in finals.sort_values(ascending=False, kind="stable").index:
        part = runs[runs["method"] == method].to_dict("records")
        named = {"dataset": part[0]["dataset"], "method": method}
        kept = [row for row in part if has_items(row["path"])]
        frames, tasks = [], []
        for row in kept:
            items = read_items(row["path"], row["horizon"])
            if items.rows:
                frames.append(items.to_frame())
            if items.samples:
                tasks.append(rehearsed_tasks(items))
                samples.append(_of_run(row, items))
        if frames:
            groups.append(recall_groups(frames).assign(**named, seeds=len(frames)))
        if tasks:
            every = rehearsed_ages(pd.concat(tasks, ignore_index=True))
            ages.append(every.assign(**named, seeds=len(tasks)))
    return ItemTables(
        _joined(groups, [*_OF_METHOD, "by", "group", "recalled", "observed"]),
        pd.concat(samples, ignore_index=True) if samples else pd.DataFrame(),
        _joined(ages, [*_OF_METHOD, "age", "share", "observed"]),
    )


def _of_run(row: Any, items: Items) -> pd.DataFrame:
    table = sampled(items)
    for place, name in enumerate(("dataset", "method", "seed")):
        table.insert(place, name, row[name])
    return table


def _joined(tables: list[pd.DataFrame], columns: list[str]) -> pd.DataFrame:
    return pd.concat(tables, ignore_index=True)[columns] if tables else pd.DataFrame()
