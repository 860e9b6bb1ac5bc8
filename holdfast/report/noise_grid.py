"""What is noise: every difference in Final between two methods, pale where it may be none."""

from __future__ import annotations

import pandas as pd
from matplotlib import colormaps
from matplotlib.figure import Figure

from holdfast.report import names, style

_BLUES = colormaps["Blues"]
_NUMBERS = 24  # methods, of which the numbers can be read


def plot_noise(table: pd.DataFrame) -> Figure:
    """One grid per dataset: the row's Final minus the column's, in points, the best method first.

    A cell is coloured where the 95% interval leaves out 0, and grey where the difference may be
    noise.

    table: ``differences`` of ``analyse(study)``. Raises HoldfastError when it is empty.
    """
    table = table[table["metric"] == "final"]
    style.refuse_empty(len(table), "differences")
    datasets = names.datasets_in_order(table["dataset"])
    orders = [_ordered(table[table["dataset"] == dataset]) for dataset in datasets]
    longest = max(len(names.method_name(method)) for methods in orders for method in methods)
    size = max(2.0, 0.3 * max(map(len, orders)) + max(1.2, 0.3 + 0.045 * longest))
    figure = style.Drawing(
        figsize=(size, size * len(datasets)), dpi=style.DPI, layout="constrained"
    )
    panels = figure.subplots(len(datasets), 1, squeeze=False)[:, 0]
    for axes, dataset, methods in zip(panels, datasets, orders, strict=True):
        rows = table[table["dataset"] == dataset]
        most = rows["difference"].max()
        for row in rows.to_dict("records"):
            y, x = methods.index(row["method"]), methods.index(row["other"])
            share = row["difference"] / most if most else 0.0
            colour = names.PALE if row["noise"] else _BLUES(0.25 + 0.55 * share)
            axes.fill(
                [x - 0.5, x + 0.5, x + 0.5, x - 0.5],
                [y - 0.5, y - 0.5, y + 0.5, y + 0.5],
                color=colour,
                linewidth=0,
            )
            if len(methods) <= _NUMBERS:
                dark = not row["noise"] and share > 0.5
                axes.text(
                    x,
                    y,
                    names.percent(row["difference"]),
                    ha="center",
                    va="center",
                    fontsize=5,
                    color="white" if dark else names.BLACK,
                )
        labels = [names.method_name(method) for method in methods]
        axes.set_xticks(range(1, len(methods)), labels[1:], rotation=45, ha="right", fontsize=6)
        axes.set_yticks(range(len(methods) - 1), labels[:-1], fontsize=6)
        axes.set_xlim(0.5, len(methods) - 0.5)
        axes.set_ylim(len(methods) - 1.5, -0.5)
        axes.set_aspect("equal")
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
        style.title(axes, names.dataset_name(dataset), "left")
    end = " " if size > 2.5 else "\n"  # inches, that the line takes
    figure.supxlabel(f"Final, row minus column, points;{end}grey: may be noise", fontsize=6)
    return figure


def _ordered(rows: pd.DataFrame) -> list[str]:
    """The methods, each above those that it is better than."""
    better = rows["method"].value_counts()
    methods = dict.fromkeys([*rows["method"], *rows["other"]])
    return sorted(methods, key=lambda name: -int(better.get(name, 0)))
