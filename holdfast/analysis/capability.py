"""General capability before and after a stream, as far as it was measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd

from holdfast.analysis.capability_bounds import Bounds, Measured
from holdfast.analysis.study import final_runs
from holdfast.core.config import sha256_of
from holdfast.core.errors import HoldfastError
from holdfast.results.capability import CapabilityRow, boundary, read_capability

_COLUMNS = ["dataset", "method", "after_task", "suite", "unit", "value", "value_sd"]
_COLUMNS += [
    "value_low",
    "value_high",
    "seeds",
    "before",
    "change",
    "low",
    "high",
    "drawn",
    "items",
]
_AVERAGED = ("gsm8k", "math", "mgsm", "mmlu_redux")


def capability(cells: pd.DataFrame) -> pd.DataFrame:
    """What each suite gave at each boundary, mean over seeds, and its change against no task.

    cells: of a study; those count that :func:`holdfast.analysis.study.final_runs` chooses.
    Gives ``dataset``, ``method``, ``after_task``, ``suite``, ``unit`` (``share`` of items that are
    correct, or ``bits per byte`` of a suite of text, where less is better), ``value``,
    ``value_sd`` (n - 1, NaN for one seed), ``value_low`` and ``value_high`` (95% interval),
    ``seeds`` (of which it was measured), ``before`` (of the unmodified backbone, NaN where nobody
    measured it), ``change``, ``low`` and ``high`` (its 95% interval), ``drawn`` (for the change:
    items, seeds or both, as :class:`holdfast.analysis.capability_bounds.Bounds` says) and ``items``
    (of one seed).
    The suite ``average`` is the unweighted mean of the paper's four benchmarks, where a seed was
    asked them all.
    Raises HoldfastError for seeds that were asked different questions, for a damaged result, and
    for a method and seed that is there twice.
    Source: app:res-capability, fig:capability.
    """
    found: list[dict[str, Any]] = []
    for cell in final_runs(cells).to_dict("records"):
        told = [_told(row, cell) for row in read_capability(Path(cell["path"]))]
        found += [*told, *_averages(told)]
    if not found:
        return pd.DataFrame(columns=_COLUMNS)
    table = pd.DataFrame(found)
    before = {
        (row["dataset"], row["suite"], row["asked"]): row for row in found if row["after_task"] == 0
    }
    rows, bounds = [], Bounds()
    groups = ["dataset", "method", "after_task", "suite"]
    for key, part in table[table["after_task"] > 0].groupby(groups, sort=False):
        named = dict(zip(groups, key, strict=True))
        rows.append(named | _line(part, named, before, bounds))
    return pd.DataFrame(rows, columns=_COLUMNS)


def _told(row: CapabilityRow, cell: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "dataset": cell["dataset"],
        "method": cell["method"],
        "after_task": row.after_task,
        "suite": row.suite,
        "unit": "share" if row.bits_per_byte is None else "bits per byte",
        "value": row.value,
        "items": row.items,
        "asked": sha256_of(row.settings),
        "path": cell["path"],
        "measured": [Measured(boundary(Path(cell["path"]), row.after_task), row)],
    }


def _averages(told: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One more suite for each boundary of a run at which all four benchmarks were asked."""
    averages = []
    for after_task in dict.fromkeys(row["after_task"] for row in told):
        suites = {row["suite"]: row for row in told if row["after_task"] == after_task}
        four = [suites[name] for name in _AVERAGED if name in suites]
        if len(four) == len(_AVERAGED):
            values = {
                "suite": "average",
                "value": fmean(row["value"] for row in four),
                "items": sum(row["items"] for row in four),
                "asked": sha256_of([row["asked"] for row in four]),
                "measured": [one for row in four for one in row["measured"]],
            }
            averages.append(four[0] | values)
    return averages


def _line(
    part: pd.DataFrame,
    named: dict[str, str],
    before: Mapping[tuple[str, str, str], Mapping[str, Any]],
    bounds: Bounds,
) -> dict[str, object]:
    if part["asked"].nunique() > 1:
        one, other = part.drop_duplicates("asked")["path"].iloc[:2]
        raise HoldfastError(
            f"{named['dataset']} {named['method']}: {named['suite']} was not asked alike in {one} "
            f"and {other}; measure both with the same options"
        )
    value = part["value"].mean()
    base = before.get((named["dataset"], named["suite"], part["asked"].iloc[0]))
    seeds = list(part["measured"])
    value_low, value_high, _ = bounds.of(seeds)
    low, high, drawn = math.nan, math.nan, ""
    if base is not None:
        low, high, drawn = bounds.of(seeds, base["measured"])
    earlier = math.nan if base is None else base["value"]
    return {
        "unit": part["unit"].iloc[0],
        "value": value,
        "value_sd": part["value"].std(),
        "value_low": value_low,
        "value_high": value_high,
        "seeds": len(part),
        "before": earlier,
        "change": value - earlier,
        "low": low,
        "high": high,
        "drawn": drawn,
        "items": part["items"].iloc[0],
    }
