"""Who is in the samples that the previous model wrote before each task."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from holdfast.analysis.items import Items
from holdfast.analysis.samples import rehearsed_tasks, sampled
from holdfast.report import names, style

_KINDS = {"right": names.BLUE, "chimeras": names.VERMILION, "other": names.PALE}


def plot_samples(items: Items) -> Figure:
    """One run. Left: the share of samples that asks each learned task; right: how many are right.

    A task that is rehearsed as often as any other is a row of one colour.

    items: of a run that kept its samples, from ``read_items``. Raises HoldfastError when it kept
    none.
    """
    tasks, kinds = rehearsed_tasks(items), sampled(items)
    style.refuse_empty(len(tasks), "samples")
    figure = style.Drawing(figsize=(style.PAGE, 2.9), dpi=style.DPI, layout="constrained")
    left, right = figure.subplots(1, 2)
    rows = sorted(tasks["task"].unique())
    grid = tasks.pivot(index="task", columns="on_task", values="share").loc[rows]
    first, last = rows[0] - 0.5, rows[-1] + 0.5
    image = left.imshow(
        np.ma.masked_invalid(grid.to_numpy(dtype=float)),
        cmap="viridis",
        vmin=0,
        aspect="auto",
        interpolation="nearest",
        extent=(0.5, grid.columns[-1] + 0.5, last, first),
    )
    bar = figure.colorbar(image, ax=left, format=PercentFormatter(1.0))
    bar.ax.tick_params(labelsize=style.SMALL)
    left.set(xlabel="asks task", ylabel="before task")
    _stack(right, kinds)
    _legend(figure, right)
    for axes in (left, right):
        style.dress(axes)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    left.yaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def plot_samples_by_method(samples: pd.DataFrame, by_age: pd.DataFrame) -> Figure:
    """A row a data set and method. Left: the share that asks a task, by its age; right: how many
    are right, mean over seeds, with the share of the learned items that is asked at all.

    samples, by_age: the tables ``samples`` and ``samples_by_age``. Where all learned tasks are
    rehearsed alike, the left bars fall slowly, as there are ever more tasks to share.
    Raises HoldfastError when no samples were kept.
    """
    style.refuse_empty(len(samples), "samples")
    groups = list(samples.groupby(["dataset", "method"], sort=False))
    size = style.PAGE, 0.4 + 1.7 * len(groups)
    figure = style.Drawing(figsize=size, dpi=style.DPI, layout="constrained")
    panels = figure.subplots(len(groups), 2, squeeze=False)
    for (left, right), ((dataset, method), part) in zip(panels, groups, strict=True):
        own = by_age[(by_age["dataset"] == dataset) & (by_age["method"] == method)]
        left.bar(own["age"], own["share"], 1.0, color=names.BLUE, linewidth=0)
        left.set(xlabel="age of the task that is asked", ylabel="samples")
        left.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        numbers = ["task", *_KINDS, "distinct"]
        kinds = part[numbers].groupby("task").mean().reset_index()
        _stack(right, kinds)
        right.plot(kinds["task"], kinds["distinct"], color=names.BLACK, label="items asked at all")
        for axes in (left, right):
            style.dress(axes)
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        name = f"{names.dataset_name(str(dataset))}, {names.method_name(str(method))}"
        style.title(left, name, "left")
    _legend(figure, panels[0, 1])
    return figure


def _stack(axes: Axes, kinds: pd.DataFrame) -> None:
    bottom = np.zeros(len(kinds))
    for kind, colour in _KINDS.items():
        axes.bar(kinds["task"], kinds[kind], 1.0, bottom, color=colour, label=kind)
        bottom = bottom + kinds[kind].to_numpy()
    axes.set(xlabel="before task", ylabel="samples", ylim=(0, 1))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))


def _legend(figure: Figure, axes: Axes) -> None:
    figure.legend(
        *axes.get_legend_handles_labels(),
        loc="outside lower right",
        ncols=4,
        fontsize=style.SMALL,
        frameon=False,
    )
