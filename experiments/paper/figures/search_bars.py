"""Task-level successive halving: the ranks of methods at each horizon of the search."""

from __future__ import annotations

import math

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import PercentFormatter

from experiments.paper.figures.bar_labels import ALLOCATION_COLOURS, rule_legend
from experiments.paper.figures.composition_dots import dotted, draw_dots
from holdfast.report import names, style

_OUT = "#EEEEEE"
_ROOM = 1.5  # upper limit of the axis; bars end at 1, and their numbers stand beyond


def plot_search(bars: pd.DataFrame) -> Figure:
    """Mean percentile rank over datasets, one column per horizon, one row per method.

    Dark dots mark the mechanisms of each method. Rows are sorted by the last horizon, then by the
    one before. A grey row has left the search on every dataset; ``2/3`` beside a number means that
    the method is still in the search on two of three datasets, over which the bar is the mean.

    bars: the table ``search_percentiles`` of ``analyse(study)``; columns horizon (tasks), method
    (tag), percentile (share; NaN for a method that is eliminated or the only one) and datasets (on
    how many it is still in the search).
    Raises HoldfastError when the table is empty.
    Source: sec:search, fig:sho-results.
    """
    style.refuse_empty(len(bars), "search percentiles")
    means = bars.pivot(index="method", columns="horizon", values="percentile")
    last_first = list(means.columns[::-1])
    means = means.sort_values(last_first, ascending=False, na_position="last", kind="stable")
    counts = bars.pivot(index="method", columns="horizon", values="datasets").reindex(means.index)
    methods = [str(method) for method in means.index]
    everywhere = int(counts.max(axis=None))
    widths = [0.3 * len(dotted(methods)), *means.shape[1] * [1.3]]  # inches
    size = (min(style.PAGE, sum(widths) + 0.2), 0.145 * len(methods) + 0.75)
    figure = style.Drawing(*size)
    dots, *panels = figure.subplots(1, len(widths), sharey=True, width_ratios=widths)
    style.dress(dots)
    draw_dots(dots, methods, across=False)
    for axes, horizon in zip(panels, means.columns, strict=True):
        _draw(axes, means[horizon], counts[horizon], everywhere)
        style.title(axes, f"after {horizon} tasks")
    dots.set_ylim(len(methods) - 0.4, -0.6)
    extra: list[Artist] = []
    if (counts == 0).any(axis=None):
        extra.append(Patch(color=_OUT, label="out of the search"))
    if ((counts > 0) & (counts < everywhere)).any(axis=None):
        extra.append(
            Line2D([], [], linestyle="", label=f"n/{everywhere}: still on n of {everywhere}")
        )
    rule_legend(figure, methods, *extra)
    return figure


def _draw(axes: Axes, means: pd.Series, counts: pd.Series, everywhere: int) -> None:
    """Draw one horizon. means, counts: indexed by method, from top to bottom."""
    style.dress(axes)
    for place, (method, mean) in enumerate(means.items()):
        if not counts[method]:
            axes.axhspan(place - 0.4, place + 0.4, color=_OUT, linewidth=0)
            continue
        alone = math.isnan(mean)
        rule = names.mechanisms(str(method))[1]
        axes.barh(place, 0 if alone else mean, 0.8, color=ALLOCATION_COLOURS[rule])
        share = f"  {counts[method]}/{everywhere}" if counts[method] < everywhere else ""
        text = f"{'alone' if alone else f'{100 * mean:.0f}'}{share}"
        style.number_bar(axes, text, 0 if alone else mean, place, gap=2)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, symbol=""))
    axes.set(xlim=(0, _ROOM), xticks=[0, 0.5, 1], xlabel="percentile rank")
