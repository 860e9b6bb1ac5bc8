"""Who is in the samples that the previous model wrote before each task."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from holdfast.analysis.items import Items, rehearsed_tasks, sampled
from holdfast.report import names, style

_KINDS = {"right": names.BLUE, "chimeras": names.VERMILION, "other": names.PALE}


def plot_samples(items: Items) -> Figure:
    """Left: the share of samples that asks each learned task; right: how many are right at all.

    Where every task is rehearsed as often as any other, a row has one colour.

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
    bar = figure.colorbar(image, ax=left, format=PercentFormatter(1.0, decimals=0))
    bar.ax.tick_params(labelsize=style.SMALL)
    left.set(xlabel="asks task", ylabel="before task")
    bottom = np.zeros(len(kinds))
    for kind, colour in _KINDS.items():
        right.bar(kinds["task"], kinds[kind], 1.0, bottom, color=colour, label=kind)
        bottom = bottom + kinds[kind].to_numpy()
    right.set(xlabel="before task", ylabel="samples", ylim=(0, 1))
    right.yaxis.set_major_formatter(PercentFormatter(1.0))
    figure.legend(
        *right.get_legend_handles_labels(),
        loc="outside lower right",
        ncols=3,
        fontsize=style.SMALL,
        frameon=False,
    )
    for axes in (left, right):
        style.dress(axes)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    left.yaxis.set_major_locator(MaxNLocator(integer=True))
    return figure
