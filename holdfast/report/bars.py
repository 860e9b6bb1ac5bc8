"""Bar charts of general capability, of a run's samples and of a memory's evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, PercentFormatter

from holdfast.core.errors import HoldfastError
from holdfast.report import names, style

_COLOURS = (names.BLUE, names.ORANGE, names.GREEN, names.PURPLE, names.SKY, names.GREY)
_GROUP = 0.84  # width of a group of bars; 1 leaves no gap
# Kinds of samples: items word for word, learned questions answered otherwise, and the rest.
KINDS = {"right": names.BLUE, "chimeras": names.VERMILION, "other": names.PALE}

_SIDES = (
    ("memory", "memory as it answers", names.BLUE),
    ("weights", "weights alone", names.ORANGE),
    ("list", "list alone", names.GREY),
)
_PARTS = {
    "answered right": {
        "recalled": "taught wordings",
        "wordings": "other wordings",
        "reverse": "the other side of a fact",
        "sentence": "inside a sentence",
        "everyday_kept": "everyday questions kept",
        "others_unchanged": "same relation, other entity:\nanswered as before",
        "untaught_unchanged": "same entity, other relation:\nanswered as before",
    },
    "not taught, yet given a taught answer": {
        "everyday_taught_answer": "everyday questions",
        "others_taught_answer": "same relation, other entity",
        "untaught_taught_answer": "same entity, other relation",
    },
}
_ROW, _FRAME = 0.42, 0.42  # inches: for a measure; for a panel's title and axis
_THICK = 0.25  # of a bar, where a measure has 1
_ROOM = 1.12  # end of the axis: bars end at 1, and their numbers need room


def plot_capability(capability: pd.DataFrame) -> Figure:
    """General capability after the last measured task of each method, beside the base model.

    One panel per dataset, one group of bars per method, one bar per suite that has right answers;
    a line across a bar is the base model's.

    capability: the table of ``analyse(study)``. Raises HoldfastError without such a suite.
    Source: app:res-capability, fig:capability.
    """
    answered = capability[capability["unit"] == "share"]
    last = answered.groupby(["dataset", "method"])["after_task"].transform("max")
    scores = answered[answered["after_task"] == last]
    if not len(answered) and len(capability):
        raise HoldfastError("capability: no suite with right answers was measured; text has none")
    style.refuse_empty(len(scores), "capability")
    suites = dict.fromkeys(scores["suite"])
    colours = {name: _COLOURS[place % len(_COLOURS)] for place, name in enumerate(suites)}
    datasets = names.datasets_in_order(scores["dataset"])
    figure, panels = style.panels(len(datasets), 1.75, sharey=True)
    for axes, dataset in zip(panels, datasets, strict=True):
        _draw_suites(axes, scores[scores["dataset"] == dataset], colours)
        style.share_axis(axes, scores[["value", "before"]].max(axis=None))
        style.title(axes, names.dataset_name(dataset))
        style.label_row(axes, "accuracy")
    handles: list[Patch | Line2D] = [
        Patch(color=colour, label=names.plain(name)) for name, colour in colours.items()
    ]
    if scores["before"].notna().any():
        handles.append(Line2D([], [], color=names.BLACK, linewidth=1, label="base model"))
    style.bottom_legend(figure, handles)
    return figure


def _draw_suites(axes: Axes, rows: pd.DataFrame, colours: Mapping[str, str]) -> None:
    methods = list(dict.fromkeys(rows["method"]))
    score = rows.set_index(["method", "suite"])["value"]
    base = rows.set_index(["method", "suite"])["before"].dropna()
    width = _GROUP / len(colours)
    for group, method in enumerate(methods):
        for place, (name, colour) in enumerate(colours.items()):
            middle = group + width * (place - (len(colours) - 1) / 2)
            if (method, name) in score:
                axes.bar(middle, score[method, name], 0.9 * width, color=colour)
            if (method, name) in base:
                ends = [middle - 0.45 * width, middle + 0.45 * width]
                axes.plot(ends, [base[method, name]] * 2, color=names.BLACK, linewidth=1)
    axes.set_xticks(range(len(methods)), [names.method_lines(method) for method in methods])
    axes.set_xlim(-0.55, len(methods) - 0.45)
    axes.tick_params(axis="x", length=0)


def plot_samples(samples: pd.DataFrame, by_age: pd.DataFrame) -> Figure:
    """Two panels per data set and method, with means over seeds. Left: the share of samples that
    ask a task, by its age. Right: before each task, the shares of right samples, chimeras and
    others, and of the learned items that are asked.

    samples, by_age: the tables ``samples`` and ``samples_by_age``. If all learned tasks are
    rehearsed alike, the left bars still fall slowly, as old tasks share samples with more others.
    Raises HoldfastError when no samples were kept.
    """
    style.refuse_empty(len(samples), "samples")
    groups = list(samples.groupby(["dataset", "method"], sort=False))
    figure = style.Drawing(style.PAGE, 0.4 + 1.7 * len(groups))
    panels = figure.subplots(len(groups), 2, squeeze=False)
    for (left, right), ((dataset, method), part) in zip(panels, groups, strict=True):
        ages = by_age[(by_age["dataset"] == dataset) & (by_age["method"] == method)]
        left.bar(ages["age"], ages["share"], 1.0, color=names.BLUE, linewidth=0)
        left.set(xlabel="age of the task that is asked", ylabel="samples")
        left.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        kinds = part[["task", *KINDS, "distinct"]].groupby("task").mean().reset_index()
        bottom = np.zeros(len(kinds))
        for kind, colour in KINDS.items():
            right.bar(kinds["task"], kinds[kind], 1.0, bottom, color=colour, label=kind)
            bottom = bottom + kinds[kind].to_numpy()
        right.set(xlabel="before task", ylabel="samples", ylim=(0, 1))
        right.yaxis.set_major_formatter(PercentFormatter(1.0))
        right.plot(kinds["task"], kinds["distinct"], color=names.BLACK, label="items asked at all")
        name = f"{names.dataset_name(str(dataset))}, {names.method_name(str(method))}"
        style.title(left, name, "left")
        for axes in (left, right):
            style.dress(axes)
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    style.bottom_legend(figure, panels[0, 1].get_legend_handles_labels()[0])
    return figure


def plot_evaluation(values: Mapping[str, Any]) -> Figure:
    """Bars of the questions answered right, above bars of those wrongly given a taught answer.

    A side without a measure gets a dash; a measure that no side has is left out.

    values: the contents of ``evaluation.json``. Raises HoldfastError when nothing was measured.
    """
    rows = values["rows"]
    parts = {}
    for title, labels in _PARTS.items():
        measured = {
            f"{label} ({rows[name]['of']})": rows[name]
            for name, label in labels.items()
            if name in rows and any(rows[name][side] is not None for side, _, _ in _SIDES)
        }
        if measured:
            parts[title] = measured
    style.refuse_empty(len(parts), "evaluation")
    heights = [_ROW * len(part) + _FRAME for part in parts.values()]
    figure = style.Drawing(style.PAGE * 0.8, sum(heights) + 0.3)
    panels = figure.subplots(len(parts), 1, squeeze=False, height_ratios=heights)
    for axes, (title, part) in zip(panels.flat, parts.items(), strict=True):
        _draw_measures(axes, part)
        style.title(axes, title, "left")
    style.bottom_legend(figure, [Patch(color=colour, label=label) for _, label, colour in _SIDES])
    return figure


def _draw_measures(axes: Axes, measures: Mapping[str, Mapping[str, Any]]) -> None:
    """Draw one panel, its measures from top to bottom."""
    style.dress(axes)
    for place, row in enumerate(measures.values()):
        for number, (side, _, colour) in enumerate(_SIDES):
            middle = place + (number - 1) * (_THICK + 0.02)
            value = row[side]
            axes.barh(middle, value or 0, _THICK, color=colour)
            text = "–" if value is None else f"{100 * value:.{0 if value in (0, 1) else 1}f}"
            style.number_bar(axes, text, value or 0, middle, gap=2)
    axes.set_yticks(range(len(measures)), list(measures))
    axes.set(ylim=(len(measures) - 0.45, -0.55), xlim=(0, _ROOM), xticks=[0, 0.25, 0.5, 0.75, 1])
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", alpha=0.25, linewidth=0.5)
    axes.set_axisbelow(True)
