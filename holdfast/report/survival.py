"""Survival curves: recall of a task, by the number of tasks learned since."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from holdfast.analysis import curves as analysis
from holdfast.core.errors import HoldfastError
from holdfast.report import names, style

_MARKS = 8  # approximate number of markers on a curve


def plot_survival(bands: pd.DataFrame, methods: Sequence[str] | None = None) -> Figure:
    """R(a) of each method with the band of its seeds and its half-life, one panel per dataset.

    The band goes from the lowest seed to the highest. A legend below each panel gives half-lives
    in tasks; ``>99`` means that the mean curve does not fall below half within 99 tasks.

    bands: the table ``survival`` of ``analyse(study)``; columns dataset, method, age (tasks), mean,
    lowest, highest (shares); methods: those to draw, in this order, None for all; a dataset may
    lack some.
    Raises HoldfastError when the table is empty, or a method is in no dataset.
    Source: sec:res-time, fig:survival.
    """
    style.refuse_empty(len(bands), "survival curves")
    chosen = list(dict.fromkeys(bands["method"] if methods is None else methods))
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
    figure, panels = style.panels(len(datasets), 1.95 + 0.12 * (most + 1), sharey=True)
    for axes, dataset in zip(panels, datasets, strict=True):
        curves = {method: rows for (name, method), rows in by_method if name == dataset}
        for method in [method for method in chosen if method in curves]:
            curve = curves[method].set_index("age")
            _draw(axes, method, curve, half_lives[dataset, method], looks[method])
        _finish(axes)
        style.title(axes, names.dataset_name(dataset))
        if style.leads_its_row(axes):
            axes.set_ylabel("recall $R(a)$")
    return figure


def _draw(axes: Axes, method: str, curve: pd.DataFrame, half_life: float, look: names.Look) -> None:
    """Draw one curve with its band and half-life. curve: indexed by age."""
    axes.fill_between(
        curve.index, curve["lowest"], curve["highest"], color=look.colour, alpha=0.2, linewidth=0
    )
    axes.plot(
        curve.index,
        curve["mean"],
        color=look.colour,
        linestyle=look.line,
        linewidth=1.2,
        marker=look.marker,
        markersize=3,
        markevery=1 + len(curve) // _MARKS,
        label=f"{names.method_name(method)}: {_lifetime(half_life, curve)}",
    )
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


def _finish(axes: Axes) -> None:
    axes.set(xlabel="age $a$: tasks learned since", ylim=(0, 1.03))
    axes.set_xlim(left=0)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    axes.grid(alpha=0.25, linewidth=0.5)
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
