"""Figures of recall matrices, for paper and screen."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import MaxNLocator, PercentFormatter

from holdfast.results import RecallMatrix
from holdfast.results.metrics import retention_by_age

# Okabe and Ito's palette: told apart by most colour-blind readers, and in grey by their order.
_COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_MARKERS = ("o", "s", "^", "D", "v", "P")


def comparison(named: Mapping[str, RecallMatrix]) -> Figure:
    """Retention by age of several trajectories, above the matrix of each."""
    columns = max(2, len(named))
    figure = Figure(figsize=(4.2 * columns, 7.2), layout="constrained")
    grid = figure.add_gridspec(2, columns, height_ratios=(1, 1.25))
    _draw_retention(figure.add_subplot(grid[0, :]), named)
    image = None
    axes = []
    for column, (name, matrix) in enumerate(named.items()):
        axes.append(figure.add_subplot(grid[1, column]))
        image = draw_matrix(axes[-1], matrix, name)
    if image is not None:
        figure.colorbar(image, ax=axes, label="accuracy", format=PercentFormatter(1.0), shrink=0.85)
    return figure


def _draw_retention(axes: Axes, named: Mapping[str, RecallMatrix]) -> None:
    """R(a): mean accuracy on a task, a tasks after it was learned.  Source: sec. res-time."""
    for (name, matrix), colour, marker in zip(named.items(), _COLOURS, _MARKERS, strict=False):
        curve = retention_by_age(matrix)
        ages = np.arange(len(curve))
        axes.plot(ages, curve, color=colour, marker=marker, markersize=5, linewidth=2, label=name)
    axes.set(
        xlabel="age: tasks learned since",
        ylabel="recall R(a)",
        title="How long a task is remembered",
        ylim=(-0.03, 1.05),
    )
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)


def draw_matrix(axes: Axes, matrix: RecallMatrix, title: str) -> AxesImage:
    """One matrix as a heat map; what nobody observed stays blank."""
    tasks = matrix.horizon
    values = np.ma.masked_invalid(matrix.accuracies()[1:, 1 : tasks + 1])
    # Accuracy on a task before its turn is transfer, not memory.
    values[np.triu_indices(tasks, k=1)] = np.ma.masked
    edges = (0.5, tasks + 0.5, tasks + 0.5, 0.5)
    image = axes.imshow(values, cmap="cividis", vmin=0, vmax=1, extent=edges, aspect="equal")
    axes.set(xlabel="on task", ylabel="after task", title=title)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.spines[["top", "right"]].set_visible(False)
    return image


def save(figure: Figure, path: Path) -> list[Path]:
    """Write ``path`` as PNG and as PDF with text as text; return both paths."""
    from matplotlib import rc_context

    written = [path.with_suffix(".png"), path.with_suffix(".pdf")]
    with rc_context({"pdf.fonttype": 42}):
        for target in written:
            figure.savefig(target, dpi=160)
    return written
