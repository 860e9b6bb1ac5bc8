"""Which facts go first: what is recalled of items, by age, by length and by rehearsal."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from holdfast.report import names, style

_LABELS = {
    "age": "age: tasks learned since",
    "length": "characters of question and answer",
    "rehearsed": "samples that asked the item",
}


def plot_item_groups(table: pd.DataFrame) -> Figure:
    """A row a data set: the share of items recalled, by age over all rows, and after the last task
    by length and by how many samples asked the item, as far as these differ.

    table: ``items``, of the methods to draw. Raises HoldfastError when it is empty.
    """
    style.refuse_empty(len(table), "items")
    datasets = names.datasets_in_order(table["dataset"])
    kinds = [by for by in _LABELS if by in set(table["by"])]
    looks = names.looks(dict.fromkeys(table["method"]))
    width = style.PAGE if len(kinds) > 1 else style.COLUMN
    size = width, 0.5 + 1.9 * len(datasets)
    figure = style.Drawing(figsize=size, dpi=style.DPI, layout="constrained")
    grid = figure.subplots(len(datasets), len(kinds), squeeze=False, sharey=True)
    for row, dataset in zip(grid, datasets, strict=True):
        part = table[table["dataset"] == dataset]
        for axes, by in zip(row, kinds, strict=True):
            _draw(axes, part[part["by"] == by], looks)
            axes.set_xlabel(_LABELS[by])
            style.dress(axes)
        row[0].set_ylabel("recalled")
        style.title(row[0], names.dataset_name(dataset), "left")
    handles = grid[0, 0].get_legend_handles_labels()[0]
    style.bottom_legend(figure, handles)
    return figure


def _draw(axes: Axes, table: pd.DataFrame, looks: dict[str, names.Look]) -> None:
    groups = sorted(set(table["group"]), key=lambda name: int(name.partition("-")[0]))
    for method, part in table.groupby("method", sort=False):
        look = looks[str(method)]
        axes.plot(
            [groups.index(name) for name in part["group"]],
            part["recalled"],
            color=look.colour,
            linestyle=look.line,
            marker=look.marker,
            linewidth=1.2,
            markersize=3.5,
            label=names.method_name(str(method)),
        )
    axes.set_xticks(range(len(groups)), groups)
    axes.set_ylim(0, 1.03)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.grid(alpha=0.25, linewidth=0.5)
