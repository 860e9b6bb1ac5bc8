"""General capability before and after a stream, with its uncertainty."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from holdfast.analysis.study import final_runs
from holdfast.analysis.uncertainty import interval, percentiles, ratio_draws
from holdfast.core.config import sha256_of
from holdfast.core.errors import HoldfastError
from holdfast.results import CapabilityRow, Description, read_capability
from holdfast.results.capability import boundary_directory, read_verdicts

_KEYS = ["dataset", "method", "after_task", "suite"]
_AVERAGED = ("gsm8k", "math", "mgsm", "mmlu_redux")


class _Measured(NamedTuple):
    """A suite's value. verdicts: of :func:`read_verdicts`, empty if no samples were kept."""

    suite: str
    value: float
    verdicts: Mapping[str, tuple[float, float]]


def capability(cells: pd.DataFrame) -> pd.DataFrame:
    """Each suite's value after each task, mean over seeds, and its change from the backbone's.

    Of the :func:`holdfast.analysis.study.final_runs`: ``dataset``, ``method``, ``after_task``,
    ``suite``, ``unit`` (``share`` of items that are correct, or ``bits per byte`` of text, where
    less is better), ``value``, ``value_sd`` (n - 1, NaN for one seed), ``value_low`` and
    ``value_high`` (95% interval), ``seeds`` (how many were measured), ``before`` (value of the
    unmodified backbone, NaN if not measured), ``change``, ``low`` and ``high`` (its 95% interval),
    ``drawn`` (what was resampled for it, see :func:`bounds`) and ``items`` (of one seed).
    The suite ``average`` is the unweighted mean of the paper's four benchmarks, over the seeds that
    were asked all four. The table is empty if nothing was measured after a task.
    Raises HoldfastError for seeds that were asked different questions and for a damaged result.
    Source: app:res-capability, fig:capability.
    """
    records: list[dict[str, Any]] = []
    for cell in final_runs(cells).to_dict("records"):
        results = read_capability(Path(cell["path"]))
        backbone = Description.read(Path(cell["path"])).backbone["fingerprint"] if results else ""
        rows = [_record(row, cell) | {"backbone": backbone} for row in results]
        records += [*rows, *_averages(rows)]
    before = {
        (row["dataset"], row["suite"], row["asked"], row["backbone"]): row
        for row in records
        if row["after_task"] == 0
    }
    after = pd.DataFrame(row for row in records if row["after_task"] > 0)
    if after.empty:
        return after
    return pd.DataFrame(
        dict(zip(_KEYS, key, strict=True)) | _over_seeds(part, before)
        for key, part in after.groupby(_KEYS, sort=False)
    )


def _record(row: CapabilityRow, cell: Mapping[str, Any]) -> dict[str, Any]:
    directory = boundary_directory(Path(cell["path"]), row.after_task)
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
        "measured": [_Measured(row.suite, row.value, read_verdicts(directory, row))],
    }


def _averages(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A run's rows of the suite ``average``: one per boundary with all four benchmarks."""
    averages = []
    for after_task in dict.fromkeys(row["after_task"] for row in rows):
        suites = {row["suite"]: row for row in rows if row["after_task"] == after_task}
        if suites.keys() >= {*_AVERAGED}:
            four = [suites[name] for name in _AVERAGED]
            values = {
                "suite": "average",
                "value": fmean(row["value"] for row in four),
                "items": sum(row["items"] for row in four),
                "asked": sha256_of([row["asked"] for row in four]),
                "measured": [suite for row in four for suite in row["measured"]],
            }
            averages.append(four[0] | values)
    return averages


def _over_seeds(part: pd.DataFrame, before: Mapping[Any, Mapping[str, Any]]) -> dict[str, Any]:
    """The table's columns for one suite after one task. part: one row per seed."""
    first = part.iloc[0]
    if part["asked"].nunique() > 1:
        path, other_path = part.drop_duplicates("asked")["path"].iloc[:2]
        raise HoldfastError(
            f"{first['dataset']} {first['method']}: {first['suite']} was not asked alike in {path} "
            f"and {other_path}; measure both with the same options"
        )
    seeds = list(part["measured"])
    value_low, value_high, _ = bounds(seeds)
    base = before.get(tuple(first[["dataset", "suite", "asked", "backbone"]]))
    earlier, low, high, drawn = math.nan, math.nan, math.nan, ""
    if base is not None:
        earlier = base["value"]
        low, high, drawn = bounds(seeds, base["measured"])
    value = part["value"].mean()
    return {
        "unit": first["unit"],
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
        "items": first["items"],
    }


def bounds(
    after: Sequence[Sequence[_Measured]], before: Sequence[_Measured] | None = None
) -> tuple[float, float, str]:
    """The 95% interval of a mean over seeds, or of its change, and what was resampled for it.

    after: for each seed, the suites whose unweighted mean is reported; before: the same suites of
    the unmodified backbone, None for the interval of the mean itself. Resampled are ``items`` if
    all samples were kept, ``items and seeds`` if there also are several seeds, and ``seeds`` if
    there are several but samples are missing. Otherwise the bounds are NaN and the text is empty.
    """
    suites = [
        _draws([seed[place] for seed in after], before[place] if before else None, place)
        for place in range(len(after[0]))
    ]
    complete = [draws for draws in suites if draws is not None]
    if len(complete) == len(suites):
        low, high = percentiles(np.mean(complete, axis=0))
        return low, high, "items and seeds" if len(after) > 1 else "items"
    if len(after) > 1:
        earlier = fmean(suite.value for suite in before) if before else 0.0
        changes = [[fmean(suite.value for suite in seed) - earlier] for seed in after]
        return *interval(np.array(changes)), "seeds"
    return math.nan, math.nan, ""


def _draws(
    seeds: Sequence[_Measured], before: _Measured | None, place: int
) -> NDArray[np.float64] | None:
    """One suite's value or change in each draw; None if samples are missing or items differ."""
    first = seeds[0]
    items = (before or first).verdicts.keys()
    if not items or any(seed.verdicts.keys() != items for seed in seeds):
        return None
    # The unit of a draw is an item; for MGSM a problem, which is asked in several languages.
    units = {item: item.rpartition("/")[2] if first.suite == "mgsm" else item for item in items}
    places = {unit: number for number, unit in enumerate(sorted({*units.values()}))}
    values, weights = np.zeros((len(seeds), len(places))), np.zeros(len(places))
    for item, unit in units.items():
        weights[places[unit]] += first.verdicts[item][1]
        earlier = before.verdicts[item][0] if before else 0.0
        values[:, places[unit]] += [seed.verdicts[item][0] - earlier for seed in seeds]
    return ratio_draws(values, weights, place)
