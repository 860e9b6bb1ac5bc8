"""Shared parts of bar charts of methods: numbers above bars, colours of allocation rules."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from holdfast.core.mechanisms import BY_TAG, SHARED
from holdfast.report import names, style

ALLOCATION_COLOURS = {
    SHARED: names.ORANGE,
    "merge": names.BLUE,
    "olora": names.GREEN,
    "osrm": names.PURPLE,
}


def percent(share: float) -> str:
    """A share in per cent: ``23.2`` for 0.232."""
    return f"{100 * share:.1f}"


def number_above(
    axes: Axes,
    place: float,
    top: float,
    text: str,
    *,
    bold: bool = False,
    align: Literal["right", "center"] = "center",
    gap: float = 1.5,
) -> None:
    """Write a number ``gap`` points above the point (``place``, ``top``)."""
    axes.annotate(
        text,
        (place, top),
        (0, gap),
        textcoords="offset points",
        ha=align,
        va="bottom",
        fontsize=style.SMALL,
        weight="bold" if bold else "normal",
    )


def rule_legend(figure: Figure, methods: Iterable[str], *more: Artist) -> None:
    """Put a legend below a figure: the colours of its methods' allocation rules, and ``more``."""
    used = {names.mechanisms(method)[1] for method in methods}
    handles: list[Artist] = [
        Patch(color=colour, label=BY_TAG[rule].title)
        for rule, colour in ALLOCATION_COLOURS.items()
        if rule in used
    ]
    style.bottom_legend(figure, [*handles, *more])
