"""Compositions compared: ranks, the greedy path through the factorial, other allocation rules."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from experiments.paper.analysis.factorial import FACTORS, composition, compositions
from experiments.paper.analysis.replicates import by_dataset, replicates
from holdfast.core.errors import HoldfastError
from holdfast.core.mechanisms import ALLOCATIONS, has, tag_of
from holdfast.results.metrics import DECIMALS


def ranks(cells: pd.DataFrame) -> pd.DataFrame:
    """Ranks by mean final retention, 1 for the highest, and k_m, the worst rank of a composition.

    Ranked are the methods of the paper's 2^4 factorial that the study has; every data set needs all
    of them. Columns: ``composition``, the ranks in each data set, ``k_m`` and ``mean_rank``; sorted
    by k_m, then by mean rank, then in the factorial's order. Equal means share the smaller rank
    (1, 2, 2, 4).
    Raises HoldfastError naming the cell if one is missing or duplicated.
    Source: tab:app-factorial-ranks, app:cross-dataset-ranking.
    """
    chosen = _learned(cells)
    table = pd.DataFrame({"composition": chosen})
    datasets = by_dataset(cells)
    for dataset, part in datasets.items():
        table[dataset] = rank(replicates(part, chosen).mean(axis="columns")).to_numpy()
    table["k_m"] = table[list(datasets)].max(axis="columns")
    table["mean_rank"] = table[list(datasets)].mean(axis="columns")
    return table.sort_values(["k_m", "mean_rank"], kind="stable", ignore_index=True)


def rank(means: pd.Series) -> pd.Series:
    """Integer ranks of means, 1 for the highest; equal ones share the smaller rank."""
    return means.round(DECIMALS).rank(ascending=False, method="min").astype(int)


def _learned(cells: pd.DataFrame) -> list[str]:
    # Also methods with settings: if one has several, the error of `replicates` says what to do.
    methods = set(map(tag_of, cells["method"]))
    learned = [method for method in compositions() if method in methods]
    if not learned:
        raise HoldfastError("the study has no composition of SI, SD, replay and merge to rank")
    return learned


def build_up(cells: pd.DataFrame, factors: Sequence[str] = FACTORS) -> pd.DataFrame:
    """Start from vanilla; each step adds the mechanism that gives the highest mean final retention.

    The path continues to the last mechanism even if every addition lowers retention. A tie goes
    to the mechanism that ``factors`` names first.
    One row per data set and step: ``dataset``, ``step`` (0 for vanilla), ``added`` (empty at step
    0), ``method``, ``final`` (mean over seeds), ``final_sd``, and ``strongest``, true for the
    highest mean of each path (the first of equal ones).
    Raises HoldfastError naming the cell if a composition that a step compares is missing.
    Source: app:res-buildup, fig:app-buildup.
    """
    paths = [_path(dataset, part, factors) for dataset, part in by_dataset(cells).items()]
    columns = ["dataset", "step", "added", "method", "final", "final_sd", "strongest"]
    return pd.concat(paths, ignore_index=True)[columns] if paths else pd.DataFrame(columns=columns)


def _path(dataset: str, cells: pd.DataFrame, factors: Sequence[str]) -> pd.DataFrame:
    present: list[str] = []
    rows = [_row("", replicates(cells, [composition(present)]))]
    while len(present) < len(factors):
        additions = {
            composition([*present, factor]): factor for factor in factors if factor not in present
        }
        # Include the method of the step before, so that `replicates` requires the same seeds.
        finals = replicates(cells, [composition(present), *additions]).loc[list(additions)]
        best = finals.mean(axis="columns").round(DECIMALS).idxmax()
        present.append(additions[best])
        rows.append(_row(additions[best], finals.loc[[best]]))
    path = pd.DataFrame(rows)
    path.insert(0, "dataset", dataset)
    path.insert(1, "step", range(len(path)))
    path["strongest"] = path.index == path["final"].round(DECIMALS).idxmax()
    return path


def _row(added: str, finals: pd.DataFrame) -> dict[str, object]:
    """A row of the path. finals: of one method, its seeds as columns."""
    (values,) = finals.to_numpy(dtype=float)
    return {
        "added": added,
        "method": finals.index[0],
        "final": values.mean(),
        "final_sd": finals.std(axis="columns").iloc[0],
    }


_GROWING = tuple(rule for rule in ALLOCATIONS if rule != "merge")


def allocation_swap(cells: pd.DataFrame) -> pd.DataFrame:
    """Change in mean final retention when O-LoRA or OSRM replaces merge, anchors unchanged.

    A merged composition needs a partner, such as si_replay_olora for si_replay_merge. For each
    data set, the one with the highest mean is compared with its partners.
    One row per data set and rule: ``dataset``, ``allocation``, ``merged`` and ``swapped`` (the two
    methods), ``final_merged``, ``final_swapped`` and ``change``. A data set without partners has
    no row.
    Raises HoldfastError if no data set has partners, or if a seed of one is missing, naming it.
    Source: tab:allocation-swap, app:res-allocation.
    """
    rows = [row for dataset, part in by_dataset(cells).items() for row in _swaps(dataset, part)]
    if not rows:
        raise HoldfastError(
            "the study has no composition both with merge and with olora or osrm in its place; "
            "learn one, such as replay_merge beside replay_olora"
        )
    return pd.DataFrame(rows)


def _swaps(dataset: str, cells: pd.DataFrame) -> list[dict[str, object]]:
    tags = set(map(tag_of, cells["method"]))  # `replicates` refuses a tag with several settings
    partners = {
        method: swapped
        for method in sorted(tags)
        if has(method, "merge")
        and (swapped := {rule: tag for rule in _GROWING if (tag := _swap(method, rule)) in tags})
    }
    if not partners:
        return []
    merged = replicates(cells, partners).mean(axis="columns")
    best = str(merged.round(DECIMALS).idxmax())
    finals = replicates(cells, [best, *partners[best].values()]).mean(axis="columns")
    return [
        {
            "dataset": dataset,
            "allocation": rule,
            "merged": best,
            "swapped": tag,
            "final_merged": finals[best],
            "final_swapped": finals[tag],
            "change": finals[tag] - finals[best],
        }
        for rule, tag in partners[best].items()
    ]


def _swap(method: str, rule: str) -> str:
    return method.removesuffix("merge") + rule  # the rule is the last part of a tag
