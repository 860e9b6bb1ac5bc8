"""Heat maps: recall matrices, and which differences between methods may be noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import PercentFormatter

from holdfast.analysis.configurations import configurations
from holdfast.analysis.study import Study, final_runs
from holdfast.core.errors import HoldfastError
from holdfast.core.mechanisms import ALLOCATIONS, ANCHORS, VANILLA, tag_of
from holdfast.report import names, style
from holdfast.results import RecallMatrix, final

# Each method adds one mechanism to the one before it and removes none.
CHAIN = ("vanilla", "replay", "replay_merge", "si_replay_merge", "si_sd_replay_merge")
_ACROSS = 4  # heat maps in a row
_PITCH = 1.08  # from one heat map to the next; each is 1 wide
_BLUES = colormaps["Blues"]
_NUMBERS = 24  # methods at most whose numbers can be read
_CELL = 13  # points that a cell needs for its number, of three digits


def plot_comparison(matrices: Mapping[str, RecallMatrix]) -> Figure:
    """Recall matrices side by side, four in a row: after which task (down), on which task (across).

    Unmeasured cells are blank. If there is room, cells show their accuracy in per cent.

    matrices: by title. Raises HoldfastError when there is none.
    """
    style.refuse_empty(len(matrices), "matrices")
    titled = [_Map(matrix, names.plain(title)) for title, matrix in matrices.items()]
    starts = range(0, len(titled), _ACROSS)
    return _sheet([("after task", titled[start : start + _ACROSS]) for start in starts])


def plot_matrices(study: Study, methods: Sequence[str] | None = None) -> Figure:
    """The recall matrix of each method's seed with the median Final; one row per dataset.

    The highest Final of a row is outlined.

    methods: the columns; None for those of the paper's figure if the study has them all,
    else vanilla, the best single mechanism and the best others. Raises HoldfastError when
    the study has no Final of any of them.
    Source: app:res-matrices, fig:matrices.
    """
    if methods is None:
        learned = list(configurations(study.cells)["method"])
        methods = CHAIN if {*CHAIN} <= {*learned} else leading_methods(learned)
    matrices = median_seeds(study, methods)
    columns = [method for method in methods if any(method == key[1] for key in matrices)]
    if not columns:
        raise HoldfastError(
            f"matrices: none of {', '.join(methods)} has a Final; choose methods of the study "
            "whose last row asks every task"
        )
    rows: list[tuple[str, list[_Map]]] = []
    for dataset in names.datasets_in_order(dataset for dataset, _ in matrices):
        row = [matrices.get((dataset, method)) for method in columns]
        finals = np.array([-1.0 if matrix is None else final(matrix) for matrix in row])
        best = int(finals.argmax()) if sum(matrix is not None for matrix in row) > 1 else -1
        titles = [names.method_lines(method) if not rows else "" for method in columns]
        maps = [
            _Map(matrix, title, outlined=place == best)
            for place, (matrix, title) in enumerate(zip(row, titles, strict=True))
        ]
        rows.append((f"{names.dataset_name(dataset)}\nafter task", maps))
    return _sheet(rows)


def leading_methods(methods: Sequence[str], most: int = 6) -> list[str]:
    """At most ``most`` methods: vanilla, the best standalone mechanism, and the best others.

    methods: the best first, as in the result. A standalone mechanism is one anchor, or one
    allocation rule other than ``shared``. Of vanilla with several settings the best counts.
    """
    kinds = ((VANILLA,), (*ANCHORS, *ALLOCATIONS))
    firsts = [
        next((method for method in methods if tag_of(method) in tags), None) for tags in kinds
    ]
    fixed = [method for method in firsts if method is not None]
    best = [method for method in dict.fromkeys(methods) if method not in fixed]
    chosen = {*fixed, *best[: most - len(fixed)]}
    return [method for method in dict.fromkeys(methods) if method in chosen]


def median_seeds(study: Study, methods: Sequence[str]) -> dict[tuple[str, str], RecallMatrix]:
    """(dataset, method) -> the matrix of the seed with the median Final, if any seed has a Final.

    Of an even number of seeds, the lower of the middle two, so that no choice is favourable.
    """
    cells = final_runs(study.cells)
    medians = {}
    for key, rows in cells[cells["method"].isin(methods)].groupby(["dataset", "method"]):
        ranked = rows.dropna(subset="final").sort_values(["final", "seed"])
        if len(ranked):
            medians[key] = study.matrices[ranked["path"].iloc[(len(ranked) - 1) // 2]]
    return medians


class _Map(NamedTuple):
    """A heat map with its title; the words "not run" if there is no matrix."""

    matrix: RecallMatrix | None
    title: str
    outlined: bool = False


def _sheet(rows: Sequence[tuple[str, Sequence[_Map]]]) -> Figure:
    """Heat maps in labelled rows; the maps of a row have cells of one size."""
    # One axes for all: with an axes for each of 48 maps the layout takes minutes.
    columns = max(len(maps) for _, maps in rows)
    width = style.PAGE if columns > 2 else style.COLUMN
    inches = (width - 1.2) / (columns * _PITCH)  # of a map, beside labels and colour bar
    heads = [
        0.14 * (1 + max(panel.title.count("\n") for panel in maps)) / inches for _, maps in rows
    ]
    height = inches * (len(rows) * _PITCH + sum(heads)) + 0.4
    figure = style.Drawing(width, height)
    axes = figure.add_subplot()
    y, ticks = 0.0, {}
    for (label, maps), head in zip(rows, heads, strict=True):
        y += head
        side = max(panel.matrix.horizon if panel.matrix else 1 for panel in maps)
        for column, panel in enumerate(maps):
            _draw(axes, panel, column * _PITCH, y, side, inches)
        for task in sorted({1, max(1, side)}):
            ticks[y + (task - 0.5) / side] = str(task)
        axes.annotate(
            label,
            (0, y + 0.5),
            (-16, 0),
            textcoords="offset points",
            rotation=90,
            ha="center",
            va="center",
            multialignment="center",
            fontsize=style.MEDIUM,
        )
        y += _PITCH
    axes.set(xlim=(-0.01, columns * _PITCH - (_PITCH - 1) + 0.01), ylim=(y, 0), aspect="equal")
    axes.set_yticks(list(ticks), list(ticks.values()))
    axes.set_xticks([])
    axes.set_xlabel("on task, from left to right")
    style.dress(axes)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    bar = figure.colorbar(
        axes.images[0],
        ax=axes,
        format=PercentFormatter(1.0),
        aspect=20,
        shrink=min(1.0, 1.2 / (y + 0.01)),
        anchor=(0, 1),
        pad=0.015,
    )
    bar.set_label("accuracy", fontsize=style.MEDIUM)
    bar.ax.tick_params(labelsize=style.SMALL, length=2.5, pad=2)
    bar.outline.set_visible(False)
    return figure


def _draw(axes: Axes, panel: _Map, x: float, y: float, side: int, inches: float) -> None:
    """Draw a map, its top left corner at (x, y), one wide if it has ``side`` tasks."""
    title = axes.text(x + 0.5, y - 0.02, panel.title, ha="center", fontsize=style.MEDIUM)
    title.set_in_layout(False)  # a long title would leave no width to the maps
    if panel.matrix is None:
        axes.text(x + 0.5, y + 0.5, "not run", ha="center", fontsize=style.SMALL, color="grey")
        return
    tasks = panel.matrix.horizon
    values = np.ma.masked_invalid(panel.matrix.learned())
    # Accuracy on a task before it is learned is transfer, not memory.
    values[np.triu_indices(tasks, k=1)] = np.ma.masked
    end = tasks / side
    # Without interpolation SVG and PDF store one pixel per cell, sharp at any size.
    axes.imshow(
        values,
        cmap="cividis",
        vmin=0,
        vmax=1,
        extent=(x, x + end, y + end, y),
        interpolation="none",
    )
    if panel.outlined:
        colour = names.VERMILION
        axes.add_patch(Rectangle((x, y), end, end, fill=False, color=colour, linewidth=1.6))
    else:
        axes.plot([x, x, x + end], [y, y + end, y + end], color=names.BLACK, linewidth=0.6)
    if 72 * inches >= _CELL * side:
        for row, column in zip(*np.nonzero(~np.ma.getmaskarray(values)), strict=True):
            share = float(values[row, column])
            colour = "black" if share > 0.55 else "white"
            axes.text(
                x + (column + 0.5) / side,
                y + (row + 0.5) / side,
                f"{100 * share:.0f}",
                color=colour,
                ha="center",
                va="center",
                fontsize=style.SMALL,
            )


def plot_noise(table: pd.DataFrame) -> Figure:
    """One grid per dataset: the row's Final minus the column's, in points, the best method first.

    A cell is blue if the 95% interval excludes 0, and grey if the difference may be noise.

    table: ``differences`` of ``analyse(study)``. Raises HoldfastError when it is empty.
    """
    table = table[table["metric"] == "final"]
    style.refuse_empty(len(table), "differences")
    datasets = names.datasets_in_order(table["dataset"])
    orders = [_best_first(table[table["dataset"] == dataset]) for dataset in datasets]
    longest = max(len(names.method_name(method)) for methods in orders for method in methods)
    size = max(2.0, 0.3 * max(map(len, orders)) + max(1.2, 0.3 + 0.045 * longest))
    figure = style.Drawing(size, size * len(datasets))
    panels = figure.subplots(len(datasets), 1, squeeze=False)[:, 0]
    for axes, dataset, methods in zip(panels, datasets, orders, strict=True):
        rows = table[table["dataset"] == dataset]
        most = rows["difference"].max()
        cells = np.zeros((len(methods), len(methods), 4))  # red, green, blue, opacity
        for row in rows.to_dict("records"):
            y, x = methods.index(row["method"]), methods.index(row["other"])
            share = row["difference"] / most if most else 0.0
            dark = not row["noise"] and share > 0.5
            blue = _BLUES(0.25 + 0.55 * share)
            cells[y, x] = to_rgba(names.PALE) if row["noise"] else blue
            if len(methods) <= _NUMBERS:
                colour = "white" if dark else names.BLACK
                text = f"{100 * row['difference']:.1f}"
                axes.text(x, y, text, ha="center", va="center", fontsize=5, color=colour)
        axes.imshow(cells, interpolation="none")
        labels = [names.method_name(method) for method in methods]
        # If some pairs have no common seeds, a method may stand below one that it is better than.
        pairs = zip(rows["method"], rows["other"], strict=True)
        offset = int(all(methods.index(better) < methods.index(worse) for better, worse in pairs))
        count = len(methods) - offset
        axes.set_xticks(
            range(offset, len(methods)), labels[offset:], rotation=45, ha="right", fontsize=6
        )
        axes.set_yticks(range(count), labels[:count], fontsize=6)
        axes.set(xlim=(offset - 0.5, len(methods) - 0.5), ylim=(count - 0.5, -0.5))
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
        style.title(axes, names.dataset_name(dataset), "left")
    end = " " if size > 2.5 else "\n"  # inches that the text needs in one line
    figure.supxlabel(f"Final, row minus column, points;{end}grey: may be noise", fontsize=6)
    return figure


def _best_first(rows: pd.DataFrame) -> list[str]:
    """The methods, those first that are better than the most others."""
    better = rows["method"].value_counts()
    methods = dict.fromkeys([*rows["method"], *rows["other"]])
    return sorted(methods, key=lambda name: -int(better.get(name, 0)))
