"""The parts of the page that are text: headline, configurations, factorial table, search stages.

Each function returns plain values for the template; shares are formatted as per cent here.
"""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from holdfast.analysis.compare import SIGNIFICANT
from holdfast.core.mechanisms import VANILLA
from holdfast.report.page.lives import Lives

# Column, title, and whether it is a share.
_METRICS = (
    ("final", "Final, %", True),
    ("diag", "Diag, %", True),
    ("forget", "Forget, %", True),
    ("w10", "W(10), %", True),
    ("w50", "W(50), %", True),
    ("half_life", "Half-life, tasks", False),
)
_BOUNDS = ("change", "low", "high")
_GROUPS = {
    "age": "Items recalled, %, by age in tasks, over all rows",
    "length": "Items recalled after the last task, %, by characters of question and answer",
    "rehearsed": "Items recalled after the last task, %, by how many samples asked them",
}


def headline(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The best method compared with vanilla; without both, one method's Final, Diag and Forget.

    table: configurations of one data set, the best first.
    """
    if table.empty:
        return []
    best = table.iloc[0]
    plain = table[table["method"] == VANILLA]
    if len(table) == 1 or plain.empty:
        first = "Final" if len(table) == 1 else f"Final of {best['method']}"
        named = (("final", first), ("diag", "its Diag"), ("forget", "its Forget"))
        return [
            {**_figure(best, metric, name), "best": metric == "final"} for metric, name in named
        ]
    other = plain.iloc[0]
    lines = [{**_figure(best, "final", best["method"]), "best": True, "code": True}]
    if other["method"] != best["method"]:
        lines.append({**_figure(other, "final", other["method"]), "code": True})
        if other["final"] > 0:
            lines.append(_line("ratio", f"{best['final'] / other['final']:.1f}×"))
    return lines


def told(table: pd.DataFrame, whole: pd.DataFrame, horizon: int) -> str:
    """A sentence on what the headline's numbers mean, and on the number of seeds.

    table: configurations, the best first; whole: the runs that it summarises.
    """
    if table.empty:
        return "No trajectory has been evaluated yet."
    if not horizon:
        return "Nothing has been learned yet."
    meaning = f"Final is the mean recall of {_count(horizon, 'task')} after the last of them"
    seeds, known = int(table.iloc[0]["seeds"]), whole["seed"].nunique()
    if known == 1:
        return f"{meaning}; one seed, so there is no spread to tell."
    meaning += ", ± one standard deviation over seeds."
    if seeds < known:
        method = table.iloc[0]["method"]
        meaning += f" Of {method} only {seeds} of {_count(known, 'seed')} is finished."
    return meaning


def studied(
    dataset: str, table: pd.DataFrame, cells: pd.DataFrame, horizon: int, thing: str
) -> str:
    """One line: the data set, number of tasks, the method or number of ``thing``s, the seeds."""
    seeds = sorted({int(seed) for seed in cells["seed"]})
    parts = [dataset]
    if horizon:
        parts.append(_count(horizon, "task"))
    if len(table) == 1:
        parts.append(str(table.iloc[0]["method"]))
    elif len(table):
        parts.append(_count(len(table), thing))
    if seeds:
        parts.append(f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}")
    return " · ".join(parts)


def configuration_table(table: pd.DataFrame) -> dict[str, Any]:
    """The table of configurations; metrics that no method has are left out.

    Source: app:res-all-configs.
    """
    metrics = [one for one in _METRICS if one[0] in table and table[one[0]].notna().any()]
    columns = [
        {"title": "Method", "first": "ascending", "sorted": False},
        {"title": "Seeds", "first": "descending", "sorted": False},
        *(
            {"title": title, "first": "descending", "sorted": metric == "final"}
            for metric, title, _ in metrics
        ),
    ]
    rows = [
        {
            "method": row["method"],
            "best": place == 0,
            "cells": [
                {"value": int(row["seeds"]), "text": int(row["seeds"]), "sd": ""},
                *(_metric(row, metric, share) for metric, _, share in metrics),
            ],
        }
        for place, row in enumerate(table.to_dict("records"))
    ]
    note = "Mean ± standard deviation over seeds. Click a heading to sort."
    if "half_life" in table and table["half_life"].isna().any():
        note += " Half-life –: in at least one seed recall does not halve within the horizon."
    return {"columns": columns, "rows": rows, "note": note}


def items_text(lives: Lives) -> dict[str, Any]:
    """What the page says of its items, and whether there is anything to draw."""
    told = list(lives.refused)
    if lives.embedded:
        runs = _count(sum(run["packed"] is not None for run in lives.runs), "run")
        told.append(
            f"All {lives.counted} items of {runs}, at every row that asked them since their task "
            "was learned."
            if lives.every == 1
            else f"{lives.embedded} of the {lives.counted} items of {runs}: one in {lives.every} "
            "of each task, the same in every run. holdfast items RUN --out FILE writes them all."
        )
    return {"told": told, "drawn": bool(lives.runs)}


def item_groups(table: pd.DataFrame) -> list[dict[str, Any]]:
    """For each of age, length and rehearsal, the share recalled of each method's items.

    table: ``items`` of one data set.
    """
    found = []
    for by, title in _GROUPS.items() if len(table) else ():
        part = table[table["by"] == by]
        if part.empty:
            continue
        wide = part.pivot(index="method", columns="group", values="recalled")
        columns = sorted(wide.columns, key=lambda name: int(name.partition("-")[0]))
        methods = list(dict.fromkeys(part["method"]))
        rows = [
            {"method": method, "cells": [_percent(wide.at[method, name]) for name in columns]}
            for method in methods
        ]
        found.append({"title": title, "columns": columns, "rows": rows})
    return found


def factorial_table(effects: pd.DataFrame, model: pd.Series) -> dict[str, Any]:
    """Every effect with its share of the variance, F and p.

    effects, model: the table ``effects`` and the row of ``factorial_model`` of one data set.
    Source: app:res-anova.
    """
    power = "⁰¹²³⁴"[(~effects["term"].str.contains(":")).sum()]
    note = f"Saturated 2{power} factorial on Final, N = {model['n']}"
    if math.isfinite(model["rmse"]):
        note += (
            f", error df {model['error_df']}, RMSE {100 * model['rmse']:.2f} points, "
            f"{100 * model['r2']:.0f}% of variance explained; the standard error of any effect is "
            f"{100 * model['standard_error']:.2f} points. Bold: p < {SIGNIFICANT}."
        )
    else:
        note += ". One seed estimates no error, so there is no F and no p."
    return {
        "note": note,
        "terms": [
            {
                "name": row["term"].replace(":", " × "),
                "significant": bool(row["p"] < SIGNIFICANT),
                "cells": [
                    _cell(row["effect"], _points(row["effect"])),
                    _cell(row["low"], f"{_points(row['low'])} to {_points(row['high'])}"),
                    _cell(row["share"], f"{100 * row['share']:.1f}"),
                    _cell(row["f"], f"{row['f']:.1f}"),
                    _cell(row["p"], probability(row["p"])),
                ],
            }
            for row in effects.to_dict("records")
        ],
    }


def capability_rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Each suite's result before and after learning, by method and number of tasks learned.

    Source: app:res-capability.
    """
    lines = []
    for row in table.to_dict("records"):
        share = row["unit"] == "share"
        numbers = [
            _cell(row[name], _percent(row[name], "%") if share else f"{row[name]:.3f}")
            for name in ("before", "value")
        ]
        told = [f"{100 * row[name]:+.1f}" if share else f"{row[name]:+.3f}" for name in _BOUNDS]
        change, low, high = (one.replace("-", "−") for one in told)
        sure = "" if math.isnan(row["low"]) else f"{low} to {high}"
        lines.append(
            {
                "method": row["method"],
                "suite": row["suite"] if share else f"{row['suite']}, bits per byte",
                "after_task": row["after_task"],
                "seeds": row["seeds"],
                "cells": [{**one, "sure": ""} for one in numbers]
                + [{**_cell(row["change"], change), "sure": sure}],
            }
        )
    return lines


def _points(share: float) -> str:
    return f"{100 * share:+.1f}".replace("-", "−")


def probability(p: float) -> str:
    """A p value in the paper's format."""
    if math.isnan(p):
        return "–"
    return "<0.0001" if p < 1e-4 else f"{p:.4f}"


def stages(trace: pd.DataFrame) -> list[dict[str, Any]]:
    """Each horizon of a search: numbers of candidates and of promoted ones, and the best one."""
    lines = []
    for horizon, part in trace.groupby("horizon", sort=True):
        best = part.sort_values("rank").iloc[0]
        lines.append(
            {
                "horizon": horizon,
                "candidates": len(part),
                "went_on": int((part["fate"] == "promoted").sum()),
                "failed": int((part["fate"] == "failed").sum()),
                "score": _percent(best["score"], "%"),
                "best": best["candidate"],
            }
        )
    return lines


def _figure(row: Any, metric: str, name: str) -> dict[str, Any]:
    sd = row.get(f"{metric}_sd", math.nan)
    spread = "" if math.isnan(sd) else f"± {100 * sd:.1f} "
    shown = _percent(row[metric])
    return _line(name, shown, f"{spread}%" if shown != "–" else "")


def _line(name: str, value: str, unit: str = "") -> dict[str, Any]:
    return {"name": name, "value": value, "unit": unit, "best": False, "code": False}


def _metric(row: Any, metric: str, share: bool) -> dict[str, str]:
    value, sd = row[metric], row.get(f"{metric}_sd", math.nan)
    if not share:
        return {**_cell(value, f"{value:.1f}"), "sd": ""}
    return {**_cell(value, _percent(value)), "sd": "" if math.isnan(sd) else f"{100 * sd:.1f}"}


def _cell(value: float, text: str) -> dict[str, str]:
    """The text of a table cell and the value to sort by, empty for NaN."""
    if math.isnan(value):
        return {"value": "", "text": "–"}
    return {"value": f"{value:.10g}", "text": text}


def _percent(share: float | None, sign: str = "") -> str:
    return "–" if share is None or math.isnan(share) else f"{100 * share:.1f}{sign}"


def _count(number: int, thing: str) -> str:
    return f"one {thing}" if number == 1 else f"{number} {thing}s"
