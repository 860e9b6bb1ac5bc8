"""Final retention of every composition, above dots for its mechanisms."""

from __future__ import annotations

import math

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.paper.figures.bar_labels import (
    ALLOCATION_COLOURS,
    number_above,
    percent,
    rule_legend,
)
from experiments.paper.figures.composition_dots import by_size, dotted, draw_dots
from holdfast.report import names, style
from holdfast.results.metrics import TIE

_LEAST_COLUMNS = 5  # with fewer methods, the bars stay as narrow as with this many


def plot_compositions(table: pd.DataFrame) -> Figure:
    """Mean Final of each method with its standard deviation, one row per dataset.

    Below, dark dots mark the mechanisms of each method. One column per method: shared LoRA before
    other rules, few anchors before many. Numbers are per cent, the best of a dataset bold; a dash
    stands for a missing mean.

    table: ``configurations`` of ``analyse(study)``; columns dataset, method, horizon (tasks),
    final, final_sd (shares; NaN for one seed). Raises HoldfastError when it is empty.
    Source: sec:compositions, fig:composition-results.
    """
    style.refuse_empty(len(table), "compositions")
    methods = by_size(table["method"])
    datasets = names.datasets_in_order(table["dataset"])
    dots = 0.16 * len(dotted(methods)) + 0.1  # inches
    figure = style.Drawing(
        style.PAGE if len(methods) > 6 else style.COLUMN,
        1.15 * len(datasets) + dots + (0.9 if any(" " in method for method in methods) else 0.3),
    )
    ratios = [*(1.15 for _ in datasets), dots]
    *panels, bottom = figure.subplots(len(ratios), 1, height_ratios=ratios, sharex=True)
    for axes, dataset in zip(panels, datasets, strict=True):
        rows = table[table["dataset"] == dataset].set_index("method")
        _draw(axes, rows, methods)
        horizons = " or ".join(map(str, sorted(set(rows["horizon"]))))
        style.title(axes, f"{names.dataset_name(dataset)}, {horizons} tasks", "left")
    style.dress(bottom)
    draw_dots(bottom, methods, across=True)
    spare = max(0, _LEAST_COLUMNS - len(methods)) / 2
    bottom.set_xlim(-0.6 - spare, len(methods) - 0.4 + spare)
    rule_legend(figure, methods)
    return figure


def _draw(axes: Axes, rows: pd.DataFrame, methods: list[str]) -> None:
    """Draw the bars of one dataset. rows: indexed by method."""
    style.dress(axes)
    tops = rows["final"] + rows["final_sd"].fillna(0)
    best = rows["final"].max()
    for place, method in enumerate(methods):
        value = rows["final"].get(method, math.nan)
        if math.isnan(value):
            number_above(axes, place, 0, "–")
            continue
        axes.bar(place, value, 0.7, color=ALLOCATION_COLOURS[names.mechanisms(method)[1]])
        if not math.isnan(deviation := rows["final_sd"][method]):
            axes.errorbar(place, value, deviation, color=names.BLACK, elinewidth=0.8, capsize=1.5)
        text = percent(value)
        number_above(axes, place, tops[method], text, bold=value > best - TIE)
    style.share_axis(axes, float(tops.max()))
    axes.set_ylabel("Final")
