"""Shared parts of the figures: sizes, panels, axes and legends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from io import BytesIO
from typing import Any, Literal

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from holdfast.core.errors import HoldfastError

# Widths of a column and a page of a two-column paper, in inches; sizes of text, in points.
COLUMN, PAGE = 3.3, 6.9
SMALL, MEDIUM = 6.5, 7.0
_LETTER = 0.6 * SMALL / 72  # about; inches of a letter of a legend
DPI = 300  # of the PNG; the PDF has none
SCREEN_DPI = 130  # a page's width is 900 pixels
_MOST_COLUMNS = 3


class Drawing(Figure):
    """A figure that a notebook shows as the last value of a cell, whatever pyplot's settings."""

    def __init__(self, width: float, height: float) -> None:
        super().__init__(figsize=(width, height), dpi=DPI, layout="constrained")

    def _repr_png_(self) -> bytes:
        """The picture for a screen, where 300 dots per inch would be too large."""
        buffer = BytesIO()
        self.savefig(buffer, format="png", dpi=SCREEN_DPI)
        return buffer.getvalue()


def panels(
    count: int, height: float, least: float = 0, **options: Any
) -> tuple[Figure, list[Axes]]:
    """A figure of ``count`` panels: one at column width, several at page width, three in a row.

    height: of a row, in inches; least: the smallest width; options: of ``Figure.subplots``.
    """
    columns = min(count, _MOST_COLUMNS)
    rows = -(-count // columns)
    figure = Drawing(max(least, COLUMN if count == 1 else PAGE), height * rows)
    grid = figure.subplots(rows, columns, squeeze=False, **options)
    for unused in grid.flat[count:]:
        unused.remove()
    used = list(grid.flat[:count])
    for axes in used:
        dress(axes)
    return figure, used


def legend_width(labels: Iterable[str]) -> float:
    """The inches that the longest line of a legend needs, with its handle."""
    return 0.6 + _LETTER * max(map(len, labels))


def label_row(axes: Axes, text: str) -> None:
    """Label the vertical axis, which only the first panel of a row does."""
    place = axes.get_subplotspec()
    if place is not None and place.is_first_col():
        axes.set_ylabel(text)


def dress(axes: Axes) -> None:
    """Set text sizes that are readable in a column, and remove the top and right spines."""
    for text in (axes.xaxis.label, axes.yaxis.label):
        text.set_fontsize(MEDIUM)
    axes.tick_params(labelsize=SMALL, length=2.5, pad=2)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_linewidth(0.6)


def title(axes: Axes, text: str, place: Literal["left", "center"] = "center") -> None:
    """Set the title of a panel."""
    axes.set_title(text, loc=place, fontsize=MEDIUM, pad=3)


def share_axis(
    axes: Axes, highest: float, room: float = 1.12, grid: Literal["both", "y"] = "y"
) -> None:
    """Set a vertical axis of shares, from 0, in per cent. room: of ``highest``, for its label."""
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set_ylim(0, room * highest if np.isfinite(highest) and highest > 0 else 1)
    axes.grid(axis=grid, alpha=0.25, linewidth=0.5)
    axes.set_axisbelow(True)


def number_bar(axes: Axes, text: str, end: float, middle: float, gap: float) -> None:
    """Write a number beside the end of a horizontal bar. gap: between them, in points."""
    axes.annotate(
        text,
        (end, middle),
        (gap, 0),
        textcoords="offset points",
        va="center_baseline",
        fontsize=SMALL,
    )


def bottom_legend(figure: Figure, handles: Sequence[Artist]) -> None:
    """A legend below all panels, in one row if the figure is wide enough."""
    wide = figure.get_figwidth() > (COLUMN + PAGE) / 2
    longest = max((len(str(handle.get_label())) for handle in handles), default=0)
    fitting = int(figure.get_figwidth() / (_LETTER * (longest + 5)))  # handle and gaps are five
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=max(1, min(len(handles) if wide else 3, fitting)),
        fontsize=SMALL,
        frameon=False,
        handlelength=1,
    )


def refuse_empty(rows: int, name: str) -> None:
    """Raise HoldfastError when there is nothing to draw."""
    if not rows:
        raise HoldfastError(f"{name}: the table is empty; give at least one finished trajectory")
