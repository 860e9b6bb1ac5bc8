"""Dots that show which mechanisms each method composes: dark for active, pale for absent."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from matplotlib.axes import Axes

from experiments.paper.analysis.factorial import FACTORS
from holdfast.core.mechanisms import ALLOCATIONS, ANCHORS, BY_TAG, SHARED, settings_of
from holdfast.report import names


def dotted(methods: Iterable[str]) -> list[str]:
    """The mechanisms to show: those of the factorial, and all others that the methods use.

    In the order of a tag, with mechanisms of other packages between anchors and rules.
    """
    used = {name for method in methods for name in _active(method)} | set(FACTORS)
    anchors = [name for name in ANCHORS if name in used]
    rules = [name for name in ALLOCATIONS if name in used]
    return [*anchors, *sorted(used - {*anchors, *rules}), *rules]


def by_size(methods: Collection[str]) -> list[str]:
    """The distinct methods: sorted by rule, shared LoRA first, then by number of anchors."""
    ranks = {name: place for place, name in enumerate(BY_TAG)}

    def place(method: str) -> tuple[int, int, list[int], str]:
        anchors, rule = names.mechanisms(method)
        return ranks[rule], len(anchors), [ranks.get(name, len(ranks)) for name in anchors], method

    return sorted(set(methods), key=place)


def draw_dots(axes: Axes, methods: Sequence[str], *, across: bool) -> None:
    """Draw method k's dots at position k of the methods' axis; dark dots are active mechanisms.

    across: methods from left to right and mechanisms from top to bottom, else the reverse. The
    settings that tell two runs of one method apart are written beside the dots.
    """
    rows = dotted(methods)
    for filled in (False, True):
        spots = [
            (place, row)
            for place, method in enumerate(methods)
            for row, name in enumerate(rows)
            if (name in _active(method)) is filled
        ]
        x, y = zip(*spots, strict=True) if spots else ((), ())
        colour = "#333333" if filled else names.PALE
        axes.plot(
            *((x, y) if across else (y, x)), "o", color=colour, markersize=4.5, markeredgewidth=0
        )
    settings = [names.plain("\n".join(settings_of(method))) for method in methods]
    labels = [names.plain(names.short_name(name)) for name in rows]
    if across:
        axes.set_yticks(range(len(rows)), labels)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        if any(settings):
            axes.set_xticks(range(len(methods)), settings, rotation=45, ha="right", fontsize=6)
        else:
            axes.set_xticks([])
    else:
        axes.set_xticks(range(len(rows)), labels)
        axes.set_xlim(-0.5, len(rows) - 0.5)
        axes.set_yticks(range(len(methods)) if any(settings) else [])
        axes.set_yticklabels(settings if any(settings) else [], fontsize=6)
        axes.xaxis.tick_top()
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)


def _active(method: str) -> tuple[str, ...]:
    anchors, rule = names.mechanisms(method)
    return anchors if rule == SHARED else (*anchors, rule)
