"""Final retention along the greedy path through the factorial."""

from __future__ import annotations

import math
from typing import Literal

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.paper.figures.bar_labels import number_above, percent
from holdfast.report import names, style

_BEST = 7  # points, the size of the triangle


def plot_build_up(path: pd.DataFrame) -> Figure:
    """Final after each added mechanism, one panel per dataset; a triangle marks the strongest.

    Error bars are standard deviations over seeds.

    path: the table ``build_up`` of ``analyse(study)``; columns dataset, step (0 is the start),
    added (the mechanism of this step), method, final, final_sd (shares) and strongest.
    Raises HoldfastError when the table is empty.
    Source: app:res-buildup, fig:app-buildup.
    """
    style.refuse_empty(len(path), "build-up path")
    datasets = names.datasets_in_order(path["dataset"])
    figure, panels = style.panels(len(datasets), 1.7, sharey=True)
    for axes, dataset in zip(panels, datasets, strict=True):
        _draw(axes, path[path["dataset"] == dataset].sort_values("step"))
        style.title(axes, names.dataset_name(dataset))
        style.label_row(axes, "Final")
    highest = float((path["final"] + path["final_sd"].fillna(0)).max())
    for axes in panels:
        style.share_axis(axes, highest)
    return figure


def _draw(axes: Axes, rows: pd.DataFrame) -> None:
    axes.errorbar(
        rows["step"],
        rows["final"],
        rows["final_sd"],
        color=names.BLUE,
        linewidth=1.2,
        marker="o",
        markersize=4,
        elinewidth=0.8,
        capsize=1.5,
    )
    best = rows[rows["strongest"]]
    axes.plot(best["step"], best["final"], "^", color=names.VERMILION, markersize=_BEST, zorder=3)
    following = [*rows["final"].iloc[1:], -math.inf]
    for row, after in zip(rows.itertuples(), following, strict=True):
        top = row.final + (0 if math.isnan(row.final_sd) else row.final_sd)
        # A rising line would cross a centred number, so put the number left of the point.
        side: Literal["right", "center"] = "right" if after > row.final else "center"
        text = percent(row.final)
        gap = _BEST / 2 + 0.5 if row.strongest else 1.5
        number_above(axes, row.step, top, text, bold=row.strongest, align=side, gap=gap)
    added = [f"+ {names.short_name(name)}" for name in rows["added"].iloc[1:]]
    axes.set_xticks(rows["step"], [names.method_name(rows["method"].iloc[0]), *added])
    axes.set_xlim(-0.65, len(rows) - 0.5)
