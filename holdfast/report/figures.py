"""Figures of recall matrices, for paper and screen."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import MaxNLocator, PercentFormatter

from holdfast.core.files import replacing
from holdfast.report.names import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION
from holdfast.report.style import Drawing
from holdfast.results import RecallMatrix, retention_by_age

# In this order they also differ in greyscale.
_COLOURS = (VERMILION, BLUE, GREEN, PURPLE, ORANGE, SKY)
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")  # 7 to the 6 colours, so that 42 pairs differ
_MARKED_AGES = 20  # approximate number of markers on a long curve
_SCREEN_DPI = 160
_NUMBERED_TASKS = 12  # the largest matrix whose cells have room for a number


def plot_matrix(matrix: RecallMatrix, title: str = "") -> Figure:
    """A recall matrix as a heat map: after which task, on which task; not observed is blank.

    The cells of at most twelve tasks have their accuracy in per cent.
    """
    figure = Drawing(figsize=(4.6, 3.9), dpi=_SCREEN_DPI, layout="constrained")
    axes = figure.add_subplot()
    image = draw_matrix(axes, matrix, title)
    figure.colorbar(image, ax=axes, label="accuracy", format=PercentFormatter(1.0))
    return figure


def plot_comparison(matrices: Mapping[str, RecallMatrix]) -> Figure:
    """Retention by age of several trajectories, above the recall matrix of each.

    matrices: by the name that the figure gives each.
    """
    columns = max(1, len(matrices))
    figure = Drawing(figsize=(4.2 * max(2, columns), 7.2), dpi=_SCREEN_DPI, layout="constrained")
    grid = figure.add_gridspec(2, columns, height_ratios=(1, 1.25))
    _draw_retention(figure.add_subplot(grid[0, :]), matrices)
    image = None
    axes = []
    for column, (name, matrix) in enumerate(matrices.items()):
        axes.append(figure.add_subplot(grid[1, column]))
        image = draw_matrix(axes[-1], matrix, name)
    if image is not None:
        figure.colorbar(image, ax=axes, label="accuracy", format=PercentFormatter(1.0), shrink=0.85)
    return figure


def _draw_retention(axes: Axes, named: Mapping[str, RecallMatrix]) -> None:
    """Draw R(a): mean accuracy on a task, a tasks after it was learned.  Source: sec. res-time."""
    styles = zip(cycle(_COLOURS), cycle(_MARKERS), strict=False)
    for (name, matrix), (colour, marker) in zip(named.items(), styles, strict=False):
        curve = retention_by_age(matrix)
        every = 1 + len(curve) // _MARKED_AGES
        line = axes.plot(np.arange(len(curve)), curve, color=colour, linewidth=2, label=name)
        line[0].set(marker=marker, markersize=5, markevery=every)
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
    if named:
        axes.legend(frameon=False)


def draw_matrix(
    axes: Axes, matrix: RecallMatrix, title: str, *, numbered: bool = True
) -> AxesImage:
    """Draw one matrix as a heat map; entries that were not measured stay blank.

    numbered: whether to write the accuracy in per cent into the cells of a small matrix.
    """
    tasks = matrix.horizon
    values = np.ma.masked_invalid(matrix.accuracies()[1:, 1 : tasks + 1])
    # Accuracy on a task before it is learned is transfer, not memory.
    values[np.triu_indices(tasks, k=1)] = np.ma.masked
    end = max(tasks, 1) + 0.5
    edges = (0.5, end, end, 0.5)
    # Without interpolation the PDF stores one pixel per cell, sharp at any size.
    image = axes.imshow(
        values, cmap="cividis", vmin=0, vmax=1, extent=edges, aspect="equal", interpolation="none"
    )
    axes.set(xlabel="on task", ylabel="after task", title=title)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.spines[["top", "right"]].set_visible(False)
    if numbered and tasks <= _NUMBERED_TASKS:
        _number(axes, values)
    return image


def _number(axes: Axes, values: np.ma.MaskedArray[Any, Any]) -> None:
    """Write each observed accuracy into its cell, in per cent."""
    for row, column in zip(*np.nonzero(~np.ma.getmaskarray(values)), strict=True):
        accuracy = float(values[row, column])
        axes.text(
            column + 1,
            row + 1,
            f"{100 * accuracy:.0f}",
            color="black" if accuracy > 0.55 else "white",
            ha="center",
            va="center",
            fontsize=8,
        )


def save(figure: Figure, path: Path) -> list[Path]:
    """Write ``path``.png and ``path``.pdf, with text as text in the PDF; return both paths.

    The PNG has the figure's dots per inch. Equal figures give equal files. Raises HoldfastError
    when the files cannot be written.
    """
    from matplotlib import rc_context

    written = [path.with_name(f"{path.name}.{kind}") for kind in ("png", "pdf")]
    with rc_context({"pdf.fonttype": 42}):
        for target in written:
            kind = target.suffix.removeprefix(".")
            dated = {"CreationDate": None} if kind == "pdf" else None
            with replacing(target) as temporary:
                figure.savefig(temporary, format=kind, dpi="figure", metadata=dated)
    return written
