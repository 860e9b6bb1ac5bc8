"""One data set on the page: what its template writes and what its scripts draw."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from holdfast.analysis.capability import capability
from holdfast.analysis.composition import (
    FACTORS,
    VANILLA,
    composition,
    compositions,
    factors_of,
    has,
)
from holdfast.analysis.configurations import configurations
from holdfast.analysis.curves import bands, curves, half_lives
from holdfast.analysis.factorial import Factorial, factorial
from holdfast.analysis.study import Study, final_runs, in_report_order
from holdfast.core.errors import HoldfastError
from holdfast.report.page import sections
from holdfast.report.page.embedding import by_column, encoded, plain

_LABELS = {"si": "SI", "sd": "SD", "replay": "Replay", "merge": "Merge"}
_STAND_OUT = 6  # curves at first; the palette has as many colours
_SEARCHED = ("horizon", "rank", "candidate", "method", "score", "fate")


@dataclass(frozen=True)
class View:
    """text: for the template; script: for JSON; tables: to download."""

    text: dict[str, Any]
    script: dict[str, Any]
    tables: dict[str, pd.DataFrame]


def view(study: Study, dataset: str) -> View:
    """Everything that the page shows of one data set.

    Runs in the report order are shown; of a search without any, its candidates are.
    Source: app:results.
    """
    cells = _shown(study.cells[study.cells["dataset"] == dataset])
    thing = "method" if cells["method"].isin(study.cells["method"]).all() else "candidate"
    horizon = int(cells["horizon"].max()) if len(cells) else 0
    whole = final_runs(cells)
    table = configurations(whole) if len(whole) else pd.DataFrame()
    retention = curves(replace(study, cells=whole)) if len(whole) else pd.DataFrame()
    survival = bands(retention) if len(retention) else pd.DataFrame()
    trace = study.traces.get(dataset, pd.DataFrame())
    measured, unlike = _capability(whole)
    finished = list(table["method"]) if len(table) else []
    methods = list(dict.fromkeys([*finished, *cells["method"]]))
    explorer, result, refused = _factors(whole, finished)
    drawn = _drawn(survival)
    script = {
        "name": dataset,
        "methods": methods,
        "horizon": horizon,
        "runs": [_run(cell, study) for cell in cells.to_dict("records") if cell["horizon"]],
        "means": _means(table),
        "curves": drawn,
        "highlighted": _highlighted(finished),
        "explorer": explorer,
        "search": _standings(trace),
    }
    text = {
        "name": dataset,
        "studied": sections.studied(dataset, table, cells, horizon, thing),
        "headline": sections.headline(table),
        "told": sections.told(table, whole, horizon),
        "table": sections.configuration_table(table),
        "explorer": explorer is not None,
        "methods": methods,
        "matrices": bool(script["runs"]),
        "curves": horizon > 1,
        "banded": any(known is not None for one in drawn.values() for known in one["low"]),
        "half_lives": any(one["half_life"] is not None for one in drawn.values()),
        "factorial": _factorial(result, refused),
        "capability": sections.capability_rows(measured),
        "capability_refused": unlike,
        "search": bool(script["search"]),
        "stages": sections.stages(trace) if len(trace) else [],
    }
    tables = {
        "configurations": table,
        "survival": survival,
        "capability": measured,
        "search": trace,
    }
    if result is not None:
        tables["factorial"] = result.effects.assign(dataset=dataset)
    return View(text, script, {name: one for name, one in tables.items() if len(one)})


def _shown(cells: pd.DataFrame) -> pd.DataFrame:
    """Runs of methods as they are; of a search alone the finalists, under their own names."""
    evaluated = in_report_order(cells)
    if len(evaluated):
        return evaluated
    # Two searches may share a trajectory.
    finalists = cells[cells["horizon"] == cells["horizon"].max()].drop_duplicates("path")
    return finalists.assign(method=finalists["candidate"], searched=False)


def _capability(whole: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """What was measured, or why it cannot be shown."""
    try:
        return (capability(whole), "") if len(whole) else (pd.DataFrame(), "")
    except HoldfastError as error:
        return pd.DataFrame(), str(error)


def _run(cell: Any, study: Study) -> dict[str, Any]:
    return {
        "method": cell["method"],
        "seed": int(cell["seed"]),
        "final": plain(cell["final"]),
        "matrix": encoded(study.matrices[cell["path"]]),
    }


def _standings(trace: pd.DataFrame) -> list[dict[str, Any]]:
    if trace.empty:
        return []
    columns = by_column(trace[list(_SEARCHED)])
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _means(table: pd.DataFrame) -> dict[str, dict[str, Any]]:
    columns = ("final", "final_sd", "seeds")
    return {row["method"]: {name: plain(row[name]) for name in columns} for row in _rows(table)}


def _rows(table: pd.DataFrame) -> list[Any]:
    return table.to_dict("records") if len(table) else []


def _drawn(survival: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """The mean curve of each method, its band, and where the curve halves."""
    if survival.empty:
        return {}
    drawn = {}
    halves = half_lives(survival).set_index("method")["half_life"]
    for method, part in survival.sort_values("age").groupby("method", sort=False):
        columns = by_column(part[["mean", "low", "high"]])
        drawn[str(method)] = {**columns, "half_life": plain(halves[method])}
    return drawn


def _highlighted(finished: list[str]) -> list[str]:
    """The best method, vanilla, and each mechanism alone; without these the first few."""
    alone = [composition([factor]) for factor in reversed(FACTORS)]
    wanted = [*finished[:1], *(tag for tag in (VANILLA, *alone) if tag in finished)]
    chosen = list(dict.fromkeys(wanted if len(wanted) > 2 else [*wanted, *finished]))
    return chosen[:_STAND_OUT]


def _factors(
    whole: pd.DataFrame, finished: list[str]
) -> tuple[dict[str, Any] | None, Factorial | None, str]:
    """The explorer's data and the factorial, or why there is none; nothing for few methods."""
    composed = [method for method in finished if method in compositions()]
    factors = factors_of(composed)
    if len(factors) < 2 or len(composed) < 3:
        return None, None, ""
    result, refused = None, ""
    try:
        result = factorial(whole, factors)
    except HoldfastError as error:
        refused = str(error)
    levels = compositions(factors)
    explorer = {
        "factors": factors,
        "labels": _LABELS,
        "tags": {"".join(str(int(on)) for on in row): tag for tag, row in levels.items()},
        "start": [factor for factor in factors if has(composed[0], factor)],
        "effects": None if result is None else _main_effects(result),
    }
    return explorer, result, refused


def _main_effects(result: Factorial) -> dict[str, dict[str, Any]]:
    effects = result.effects.set_index("term")
    return {
        factor: {
            "effect": plain(effects.at[factor, "effect"]),
            "p": sections.probability(effects.at[factor, "p"]),
        }
        for factor in result.factors
    }


def _factorial(result: Factorial | None, refused: str) -> dict[str, Any] | None:
    if result is not None:
        return {**sections.factorial_table(result), "refused": ""}
    return {"note": "", "terms": [], "refused": refused} if refused else None
