"""Recall matrices as mechanisms are added: one column per method, one row per dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from numpy.typing import NDArray

from holdfast.analysis.configurations import configurations
from holdfast.analysis.study import Study, final_runs
from holdfast.core.errors import HoldfastError
from holdfast.report import names, style
from holdfast.report.choice import CHAIN, telling
from holdfast.report.figures import draw_matrix
from holdfast.results import RecallMatrix, final


def plot_matrices(study: Study, methods: Sequence[str] | None = None) -> Figure:
    """The recall matrix of each method, of the seed with the median Final; one row per dataset.

    The highest Final of a row is outlined.

    methods: the columns; None for those of the paper's figure if the study has two of them, or
    else the naive method, the best single mechanism and the best others. Raises HoldfastError when
    the study has none of them.
    Source: app:res-matrices, fig:matrices.
    """
    if methods is None:
        learned = list(configurations(study.cells)["method"])
        chain = [method for method in CHAIN if method in learned]
        methods = chain if len(chain) > 1 else telling(learned)
    return matrix_chain(median_seeds(study, methods), methods)


def median_seeds(
    study: Study, methods: Sequence[str] = CHAIN
) -> dict[tuple[str, str], RecallMatrix]:
    """(dataset, method) -> the matrix of the seed with the median Final, if any seed has a Final.

    Of an even number of seeds, the lower of the middle two, so that no choice is favourable. The
    cells are those that analysis.final_runs selects. Source: app:res-matrices.
    """
    cells = final_runs(study.cells)
    chosen = {}
    for key, rows in cells[cells["method"].isin(methods)].groupby(["dataset", "method"]):
        ranked = rows.dropna(subset="final").sort_values(["final", "seed"])
        if len(ranked):
            chosen[key] = study.matrices[ranked["path"].iloc[(len(ranked) - 1) // 2]]
    return chosen


def matrix_chain(
    matrices: Mapping[tuple[str, str], RecallMatrix], methods: Sequence[str] = CHAIN
) -> Figure:
    """One heat map for each dataset and method; the highest Final of a row is outlined.

    matrices: (dataset, method) -> matrix, as from ``median_seeds``; methods: the columns; those
    that no dataset has are left out. Raises HoldfastError when all are.
    Source: app:res-matrices, fig:matrices.
    """
    columns = [method for method in methods if any(method == key[1] for key in matrices)]
    matrices = {key: matrix for key, matrix in matrices.items() if key[1] in columns}
    datasets = names.datasets_in_order(dataset for dataset, _ in matrices)
    if not columns:
        raise HoldfastError(
            f"matrices: none of {', '.join(methods)}; choose methods that the study has"
        )
    complete = len(matrices) == len(columns) * len(datasets)
    alike = complete and len({matrix.horizon for matrix in matrices.values()}) == 1
    width = style.PAGE if len(columns) > 2 else style.COLUMN
    tall = width * (1 + len(datasets)) / len(columns)
    figure = style.Drawing(figsize=(width, tall), dpi=style.DPI, layout="compressed")
    grid = figure.subplots(len(datasets), len(columns), squeeze=False)
    for row, dataset in zip(grid, datasets, strict=True):
        shown = {name: matrices[dataset, name] for name in columns if (dataset, name) in matrices}
        best = _strongest(shown)
        for axes, method in zip(row, columns, strict=True):
            _draw(axes, shown.get(method), outlined=method == best)
        row[0].set_ylabel(f"{names.dataset_name(dataset)}\nafter task")
    for method, top, bottom in zip(columns, grid[0], grid[-1], strict=True):
        style.title(top, names.method_name(method))
        bottom.set_xlabel("on task" if bottom.images else "")
    if alike:
        _number_outside_only(grid)
    figure.align_ylabels(grid[:, 0])
    drawn = next(image for axes in grid.flat for image in axes.images)
    bar = figure.colorbar(drawn, ax=grid, format=PercentFormatter(1.0), aspect=30, pad=0.015)
    bar.set_label("accuracy", fontsize=style.MEDIUM)
    bar.ax.tick_params(labelsize=style.SMALL, length=2.5, pad=2)
    bar.outline.set_visible(False)
    _crop(figure)
    return figure


def _strongest(shown: Mapping[str, RecallMatrix]) -> str | None:
    """The method with the highest Final; None when fewer than two have a Final."""
    finals = {method: final(matrix) for method, matrix in shown.items()}
    comparable = {method: value for method, value in finals.items() if not np.isnan(value)}
    return max(comparable, key=comparable.__getitem__) if len(comparable) > 1 else None


def _draw(axes: Axes, matrix: RecallMatrix | None, *, outlined: bool) -> None:
    style.dress(axes)
    if matrix is None:
        axes.text(0.5, 0.5, "not run", ha="center", va="center", fontsize=style.SMALL, color="grey")
        axes.set(xlim=(0, 1), ylim=(0, 1), xticks=[], yticks=[], aspect="equal")
        axes.spines[:].set_visible(False)
        return
    draw_matrix(axes, matrix, "", numbered=False)
    ends = sorted({1, max(1, matrix.horizon // 2), max(1, matrix.horizon)})
    axes.set(xlabel="", ylabel="", xticks=ends, yticks=ends)
    if outlined:
        axes.spines[:].set(visible=True, color=names.VERMILION, linewidth=1.6)


def _crop(figure: Figure) -> None:
    """Remove the height that square panels leave unused, which is known only after layout."""
    figure.draw_without_rendering()
    figure.set_figheight(figure.get_tightbbox().height + 0.08)


def _number_outside_only(grid: NDArray[Any]) -> None:
    """Keep tick labels on the first column and last row only, as all panels have equal axes."""
    for axes in grid[:, 1:].flat:
        axes.tick_params(labelleft=False)
    for axes in grid[:-1].flat:
        axes.tick_params(labelbottom=False)
