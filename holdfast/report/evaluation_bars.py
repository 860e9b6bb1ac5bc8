"""What a memory knows and keeps, beside its weights alone and its list alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import PercentFormatter

from holdfast.report import names, style

_SIDES = (
    ("memory", "memory as it answers", names.BLUE),
    ("weights", "weights alone", names.ORANGE),
    ("list", "list alone", names.GREY),
)
_KNOWN = (
    ("recalled", "taught wordings"),
    ("wordings", "other wordings"),
    ("reverse", "the other side of a fact"),
    ("sentence", "inside a sentence"),
    ("everyday_kept", "everyday questions kept"),
    ("others_unchanged", "same relation, other entity:\nanswered as before"),
    ("untaught_unchanged", "same entity, other relation:\nanswered as before"),
)
_WRONG = (
    ("everyday_taught_answer", "everyday questions"),
    ("others_taught_answer", "same relation, other entity"),
    ("untaught_taught_answer", "same entity, other relation"),
)
_ROW, _FRAME = 0.42, 0.42  # inches: of a measure; of a panel's title and axis
_THICK = 0.25  # of a bar; a measure has 1
_ROOM = 1.12  # of the axis; bars end at 1, and their numbers need the room


def plot_evaluation(values: Mapping[str, Any]) -> Figure:
    """Bars of the questions answered right, above bars of those wrongly given a taught answer.

    A measure that a side does not have is a dash; one that nobody has is left out.

    values: as ``evaluation.json`` holds them. Raises HoldfastError when nothing was measured.
    """
    rows = values["rows"]
    known, wrong = _measured(rows, _KNOWN), _measured(rows, _WRONG)
    style.refuse_empty(len(known) + len(wrong), "evaluation")
    parts = [
        (part, title)
        for part, title in (
            (known, "answered right"),
            (wrong, "not taught, yet given a taught answer"),
        )
        if part
    ]
    heights = [_ROW * len(part) + _FRAME for part, _ in parts]
    figure = style.Drawing(
        figsize=(style.PAGE * 0.8, sum(heights) + 0.3), dpi=style.DPI, layout="constrained"
    )
    panels = figure.subplots(len(parts), 1, squeeze=False, height_ratios=heights)
    for axes, (part, title) in zip(panels.flat, parts, strict=True):
        _draw(axes, rows, part)
        style.title(axes, title, "left")
    style.bottom_legend(figure, [Patch(color=colour, label=label) for _, label, colour in _SIDES])
    return figure


def _measured(
    rows: Mapping[str, Any], wanted: tuple[tuple[str, str], ...]
) -> list[tuple[str, str]]:
    """The measures that at least one side has."""
    return [
        (name, label)
        for name, label in wanted
        if any(rows.get(name, {}).get(side) is not None for side, _, _ in _SIDES)
    ]


def _draw(axes: Axes, rows: Mapping[str, Any], measures: list[tuple[str, str]]) -> None:
    """Draw one panel, its measures from top to bottom."""
    style.dress(axes)
    for place, (name, _) in enumerate(measures):
        for number, (side, _, colour) in enumerate(_SIDES):
            middle = place + (number - 1) * (_THICK + 0.02)
            value = rows[name][side]
            axes.barh(middle, value or 0, _THICK, color=colour)
            axes.annotate(
                "–" if value is None else f"{100 * value:.{0 if value in (0, 1) else 1}f}",
                (value or 0, middle),
                (2, 0),
                textcoords="offset points",
                va="center_baseline",
                fontsize=style.SMALL,
            )
    labels = [f"{label} ({rows[name]['of']})" for name, label in measures]
    axes.set_yticks(range(len(measures)), labels)
    axes.set_ylim(len(measures) - 0.45, -0.55)
    axes.set_xlim(0, _ROOM)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1])
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", alpha=0.25, linewidth=0.5)
    axes.set_axisbelow(True)
