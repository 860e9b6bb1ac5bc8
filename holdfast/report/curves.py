"""Line charts: recall of tasks by age, recall of items by age, length and rehearsal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from holdfast.analysis import configurations as analysis
from holdfast.core.errors import HoldfastError
from holdfast.report import names, style

_MARKS = 8  # approximate number of markers on a curve
_GROUPED = {
    "age": "age: tasks learned since",
    "length": "characters of question and answer",
    "rehearsed": "samples that asked the item",
}


def plot_survival(bands: pd.DataFrame, methods: Sequence[str] | None = None) -> Figure:
    """R(a) of each method with a band over its seeds and its half-life, one panel per dataset.

    The band goes from the lowest seed to the highest. A legend below each panel gives half-lives
    in tasks; ``>99`` means that the mean curve does not fall below half within 99 tasks.

    bands: the table ``survival`` of ``analyse(study)``; columns dataset, method, age (tasks), mean,
    lowest, highest (shares); methods: those to draw, in this order, None for all; a dataset may
    lack some.
    Raises HoldfastError when the table is empty, or a method is in no dataset.
    Source: sec:res-time, fig:survival.
    """
    chosen = list(dict.fromkeys(bands["method"] if methods is None else methods))
    style.refuse_empty(min(len(bands), len(chosen)), "survival curves")
    absent = sorted(set(chosen) - set(bands["method"]))
    if absent:
        raise HoldfastError(
            f"survival curves: no curve of {', '.join(absent)}; "
            f"choose from {', '.join(sorted(set(bands['method'])))}"
        )
    looks = names.looks(chosen)
    bands = bands[bands["method"].isin(chosen)].sort_values("age")
    half_lives = analysis.half_lives(bands).set_index(["dataset", "method"])["half_life"]
    datasets = names.datasets_in_order(bands["dataset"])
    by_method = list(bands.groupby(["dataset", "method"]))
    most = bands.groupby("dataset")["method"].nunique().max()
    least = style.legend_width(f"{names.method_name(method)}: 99" for method in chosen)
    height = 1.95 + 0.12 * (most + 1)
    figure, panels = style.panels(len(datasets), height, least * len(datasets), sharey=True)
    for axes, dataset in zip(panels, datasets, strict=True):
        curves = {method: rows for (name, method), rows in by_method if name == dataset}
        for method in [method for method in chosen if method in curves]:
            curve = curves[method].set_index("age")
            _draw_curve(axes, method, curve, half_lives[dataset, method], looks[method])
        axes.set(xlabel="age $a$: tasks learned since", xlim=(0, None))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
        style.share_axis(axes, 1, room=1.03, grid="both")
        axes.legend(
            title="half-life in tasks",
            title_fontsize=style.SMALL,
            fontsize=style.SMALL,
            frameon=False,
            loc="upper center",
            bbox_to_anchor=(0.5, -0.2),
            handlelength=2.4,
            labelspacing=0.25,
        )
        style.title(axes, names.dataset_name(dataset))
        style.label_row(axes, "recall $R(a)$")
    return figure


def plot_item_groups(table: pd.DataFrame) -> Figure:
    """The share of items recalled, one row of panels per data set: by age in all rows, and in the
    last row by length and by how many samples asked the item, if the table has these.

    table: the table ``items``, with the methods to draw. Raises HoldfastError when it is empty.
    """
    style.refuse_empty(len(table), "items")
    datasets = names.datasets_in_order(table["dataset"])
    kinds = [by for by in _GROUPED if by in set(table["by"])]
    looks = names.looks(dict.fromkeys(table["method"]))
    least = style.legend_width(map(names.method_name, looks))
    width = max(least, style.PAGE if len(kinds) > 1 else style.COLUMN)
    figure = style.Drawing(width, 0.5 + 1.9 * len(datasets))
    grid = figure.subplots(len(datasets), len(kinds), squeeze=False, sharey=True)
    for row, dataset in zip(grid, datasets, strict=True):
        part = table[table["dataset"] == dataset]
        for axes, by in zip(row, kinds, strict=True):
            _draw_groups(axes, part[part["by"] == by], looks)
            axes.set_xlabel(_GROUPED[by])
            style.dress(axes)
        row[0].set_ylabel("recalled")
        style.title(row[0], names.dataset_name(dataset), "left")
    style.bottom_legend(figure, grid[0, 0].get_legend_handles_labels()[0])
    return figure


def _draw_curve(
    axes: Axes, method: str, curve: pd.DataFrame, half_life: float, look: names.Look
) -> None:
    """Draw one curve with its band and half-life. curve: indexed by age."""
    axes.fill_between(
        curve.index, curve["lowest"], curve["highest"], color=look.colour, alpha=0.2, linewidth=0
    )
    (line,) = axes.plot(curve.index, curve["mean"], **_line(method, look))
    line.set(markevery=1 + len(curve) // _MARKS)
    line.set_label(f"{names.method_name(method)}: {_lifetime(half_life, curve)}")
    if not math.isnan(half_life):
        # A ring on the curve, and a vertical line down to the axis.
        height = curve["mean"].loc[half_life]
        axes.plot([half_life] * 2, [0, height], ":", color=look.colour, linewidth=0.8)
        axes.plot(
            half_life, height, "o", color="white", markeredgecolor=look.colour, markersize=4.5
        )


def _lifetime(half_life: float, curve: pd.DataFrame) -> str:
    if not math.isnan(half_life):
        return f"{half_life:.0f}"
    if curve["mean"].iloc[0] == 0:
        return "nothing learned"  # a curve that starts at 0 cannot halve
    # Recall may have halved at an age that was not measured.
    return "not known" if curve["mean"].isna().any() else f">{curve.index.max()}"


def _draw_groups(axes: Axes, table: pd.DataFrame, looks: Mapping[str, names.Look]) -> None:
    groups = sorted(set(table["group"]), key=lambda name: int(name.partition("-")[0]))
    for method, part in table.groupby("method", sort=False):
        places = [groups.index(name) for name in part["group"]]
        axes.plot(places, part["recalled"], **_line(str(method), looks[str(method)]))
    axes.set_xticks(range(len(groups)), groups)
    if len(groups) > 5:  # ranges such as 64-127 would run into each other
        axes.tick_params(axis="x", labelrotation=90)
    style.share_axis(axes, 1, room=1.03, grid="both")


def _line(method: str, look: names.Look) -> dict[str, Any]:
    return {
        "color": look.colour,
        "linestyle": look.line,
        "marker": look.marker,
        "linewidth": 1.2,
        "markersize": 3,
        "label": names.method_name(method),
    }
