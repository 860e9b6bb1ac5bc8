"""The change in retention when a task-growing allocation rule replaces merged LoRA."""

from __future__ import annotations

import pandas as pd

from experiments.paper.analysis.replicates import by_dataset, replicates
from holdfast.core.errors import HoldfastError
from holdfast.core.mechanisms import ALLOCATIONS, has, tag_of
from holdfast.results.metrics import DECIMALS

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
