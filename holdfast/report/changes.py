"""The page that shows what changed in a memory, with its picture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from holdfast.core.files import write_json, write_text_atomically
from holdfast.report import names, style
from holdfast.report.figures import inline_svg
from holdfast.report.html import render_template

_FACTS = {
    "unchanged": names.GREY,
    "added": names.GREEN,
    "corrected": names.ORANGE,
    "forgotten": names.VERMILION,
}


def write_changes(values: Mapping[str, Any], folder: Path) -> Path:
    """Write ``diff.json`` and ``diff.html`` into a folder; return the page's path.

    values: of :meth:`holdfast.memory.changes.Changes.values`. The page loads no other file.
    Raises HoldfastError if the folder cannot be written.
    """
    write_json(folder / "diff.json", values, parents=True)
    drawn = inline_svg(plot_changes(values), "changes")
    title = f"What changed: {values['after']}"
    text = render_template("changes.html", **values, title=title, drawn=drawn)
    write_text_atomically(folder / "diff.html", text, parents=True)
    return folder / "diff.html"


def plot_changes(values: Mapping[str, Any]) -> Figure:
    """Bars of the facts unchanged, added, corrected and forgotten, and of the everyday questions
    answered right before and after, if any were asked.

    values: the contents of ``diff.json``.
    """
    facts, answers = values["facts"], values["answers"]
    parts: list[tuple[str, dict[str, tuple[int, str]], int]] = []
    counts = {
        kind: (facts[kind] if kind == "unchanged" else len(facts[kind]), colour)
        for kind, colour in _FACTS.items()
    }
    parts.append(("facts", counts, max(1, *(count for count, _ in counts.values()))))
    if answers is not None:
        colours = {"before": names.GREY, "after": names.BLUE}
        right = {when: (answers[when], colour) for when, colour in colours.items()}
        for when in ("before", "after"):
            if (alone := answers[f"weights_{when}"]) is not None:
                right[f"{when}, weights alone"] = (alone["right"], names.ORANGE)
        asked = answers["asked"]
        parts.append((f"everyday questions answered right, of {asked}", right, asked))
    heights = [0.3 * len(part) + 0.5 for _, part, _ in parts]
    figure = style.Drawing(style.PAGE * 0.75, sum(heights) + 0.2)
    panels = figure.subplots(len(parts), 1, squeeze=False, height_ratios=heights)
    for axes, (title, part, most) in zip(panels.flat, parts, strict=True):
        style.dress(axes)
        for place, (count, colour) in enumerate(part.values()):
            axes.barh(place, count, 0.6, color=colour)
            style.number_bar(axes, str(count), count, place, gap=3)
        axes.set_yticks(range(len(part)), list(part))
        axes.invert_yaxis()
        axes.set_xlim(0, 1.1 * most)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.tick_params(axis="y", length=0)
        style.title(axes, title, "left")
    return figure
