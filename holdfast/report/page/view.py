"""One data set's part of the page: the data for the template and for the scripts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from holdfast.analysis.composition import FACTORS, composition, compositions, factors_of, has
from holdfast.analysis.horizon import at_horizon
from holdfast.analysis.study import Study
from holdfast.analysis.tables import Analysis
from holdfast.core.mechanisms import BY_TAG, VANILLA
from holdfast.report.page import sections
from holdfast.report.page.embedding import by_column, encoded, plain
from holdfast.report.page.finalists import shown
from holdfast.report.page.lives import lives_of

_STAND_OUT = 6  # curves highlighted at first; the palette has as many colours
_SEARCHED = ("horizon", "rank", "candidate", "method", "score", "fate")


@dataclass(frozen=True)
class View:
    """text: for the template; script: for JSON."""

    text: dict[str, Any]
    script: dict[str, Any]


def view(study: Study, analysis: Analysis, dataset: str) -> View:
    """Everything that the page shows of one data set.

    analysis: with the tables of finalists. Shows the runs in report order, or if there are only
    searches, their finalists.
    Source: app:results.
    """
    cells = shown(study.cells[study.cells["dataset"] == dataset])
    thing = "method" if cells["method"].isin(study.cells["method"]).all() else "candidate"
    whole = at_horizon(cells)
    horizon = int(whole["horizon"].iloc[0]) if len(whole) else 0
    table = analysis.of(dataset, "configurations")
    refused = analysis.refused.get(("configurations", dataset), "")
    trace = study.traces.get(dataset, pd.DataFrame())
    learned = list(dict.fromkeys(table["method"] if len(table) else whole["method"]))
    methods = list(dict.fromkeys([*learned, *cells["method"]]))
    factors = _factors(learned)
    effects = analysis.of(dataset, "effects")
    explorer = _explorer(factors, learned, effects) if len(table) and factors else None
    drawn = _drawn(analysis, dataset)
    lives = lives_of(cells.to_dict("records"), study.matrices)
    script = {
        "name": dataset,
        "methods": methods,
        "horizon": horizon,
        "runs": [_run(cell, study) for cell in cells.to_dict("records") if cell["horizon"]],
        "means": _means(table),
        "curves": drawn,
        "highlighted": _highlighted(learned),
        "explorer": explorer,
        "lives": {"runs": lives.runs, "facts": lives.facts},
        "search": _standings(trace),
    }
    told = sections.told(table, whole, horizon)
    unlike = analysis.refused.get(("capability", dataset), "")
    text = {
        "name": dataset,
        "studied": sections.studied(dataset, table, cells, horizon, thing),
        "headline": sections.headline(table),
        "told": f"There are no means over seeds. {refused}." if refused else told,
        "table": sections.configuration_table(table),
        "explorer": explorer is not None,
        "methods": methods,
        "matrices": bool(script["runs"]),
        "curves": horizon > 1 and not refused,
        "banded": any(known is not None for one in drawn.values() for known in one["low"]),
        "half_lives": any(one["half_life"] is not None for one in drawn.values()),
        "lives": sections.items_text(lives) if lives.runs or lives.refused else None,
        "item_groups": sections.item_groups(analysis.of(dataset, "items")),
        "factorial": _factorial(analysis, dataset) if factors else None,
        "capability": sections.capability_rows(analysis.of(dataset, "capability")),
        "capability_refused": "" if unlike == refused else unlike,
        "search": bool(script["search"]),
        "stages": sections.stages(trace) if len(trace) else [],
    }
    return View(text, script)


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


def _drawn(analysis: Analysis, dataset: str) -> dict[str, dict[str, Any]]:
    """The mean curve of each method, its band and its half-life."""
    survival = analysis.of(dataset, "survival")
    if survival.empty:
        return {}
    drawn = {}
    halves = analysis.of(dataset, "half_lives").set_index("method")["half_life"]
    for method, part in survival.sort_values("age").groupby("method", sort=False):
        banded = part["seeds"] > 1  # a band needs two seeds
        low, high = part["lowest"].where(banded), part["highest"].where(banded)
        columns = by_column(part[["mean"]].assign(low=low, high=high))
        drawn[str(method)] = {**columns, "half_life": plain(halves[method])}
    return drawn


def _highlighted(finished: list[str]) -> list[str]:
    """The best method, vanilla and each mechanism alone; if two or fewer, also other methods."""
    alone = [composition([factor]) for factor in reversed(FACTORS)]
    wanted = [*finished[:1], *(tag for tag in (VANILLA, *alone) if tag in finished)]
    chosen = list(dict.fromkeys(wanted if len(wanted) > 2 else [*wanted, *finished]))
    return chosen[:_STAND_OUT]


def _factors(learned: list[str]) -> list[str]:
    """The factors of the composed methods; none if these are too few for a factorial."""
    composed = [method for method in learned if method in compositions()]
    factors = factors_of(composed)
    return factors if len(factors) > 1 and len(composed) > 2 else []


def _explorer(factors: list[str], learned: list[str], effects: pd.DataFrame) -> dict[str, Any]:
    levels = compositions(factors)
    best = next(method for method in learned if method in compositions())
    return {
        "factors": factors,
        "labels": {factor: BY_TAG[factor].title for factor in factors},
        "tags": {"".join(str(int(on)) for on in row): tag for tag, row in levels.items()},
        "start": [factor for factor in factors if has(best, factor)],
        "effects": _main_effects(factors, effects) if len(effects) else None,
    }


def _main_effects(factors: list[str], table: pd.DataFrame) -> dict[str, dict[str, Any]]:
    effects = table.set_index("term")
    return {
        factor: {
            "effect": plain(effects.at[factor, "effect"]),
            "p": sections.probability(effects.at[factor, "p"]),
        }
        for factor in factors
    }


def _factorial(analysis: Analysis, dataset: str) -> dict[str, Any] | None:
    """The factorial table, or the reason why it was refused, or None."""
    effects = analysis.of(dataset, "effects")
    if len(effects):
        model = analysis.of(dataset, "factorial_model").iloc[0]
        return {**sections.factorial_table(effects, model), "refused": ""}
    refused = analysis.refused.get(("effects", dataset), "")
    return {"note": "", "terms": [], "refused": refused} if refused else None
