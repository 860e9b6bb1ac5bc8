"""General capability after the stream, by method, compared with the base model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from holdfast.core.mechanisms import BY_TAG
from holdfast.report import names, style

_COLOURS = (names.BLUE, names.ORANGE, names.GREEN, names.PURPLE, names.SKY, names.GREY)
_GROUP = 0.84  # width of a group of bars; 1 leaves no gap


def plot_capability(capability: pd.DataFrame) -> Figure:
    """General capability after the last measured task of each method, beside the base model.

    One panel per dataset, one group of bars per method, one bar per suite that has right answers.

    capability: the table of that name, of ``analyse(study)``. Raises HoldfastError when it has no
    such suite.
    Source: app:res-capability, fig:capability.
    """
    answered = capability[capability["unit"] == "share"]
    last = answered.groupby(["dataset", "method"])["after_task"].transform("max")
    scores = answered[answered["after_task"] == last]
    base = scores.dropna(subset="before").groupby("suite")["before"].mean()
    named = scores.rename(columns={"suite": "benchmark", "value": "score"})
    return capability_bars(named, {str(name): float(value) for name, value in base.items()})


def capability_bars(scores: pd.DataFrame, base: Mapping[str, float]) -> Figure:
    """One panel per dataset, one group of bars per method, one bar per benchmark.

    scores: columns dataset, method, benchmark, score (share, mean over seeds), in drawing order; a
    missing (method, benchmark) leaves a gap. base: benchmark -> score of the base model, drawn as a
    line across each bar; benchmarks that it lacks have no line. Groups that differ only in the
    allocation rule are labelled by the rule.
    Raises HoldfastError when the table is empty.
    Source: app:res-capability, fig:capability.
    """
    style.refuse_empty(len(scores), "capability")
    datasets = names.datasets_in_order(scores["dataset"])
    benchmarks = list(dict.fromkeys(scores["benchmark"]))
    figure, panels = style.panels(len(datasets), 1.75, sharey=True)
    highest = max([scores["score"].max(), *(base[name] for name in benchmarks if name in base)])
    for axes, dataset in zip(panels, datasets, strict=True):
        _draw(axes, scores[scores["dataset"] == dataset], benchmarks, base)
        style.share_axis(axes, highest)
        if style.leads_its_row(axes):
            axes.set_ylabel("accuracy")
    handles: list[Patch | Line2D] = [
        Patch(color=colour, label=name) for name, colour in _coloured(benchmarks).items()
    ]
    if base:
        handles.append(Line2D([], [], color=names.BLACK, linewidth=1, label="base model"))
    style.bottom_legend(figure, handles)
    return figure


def _draw(
    axes: Axes, rows: pd.DataFrame, benchmarks: Sequence[str], base: Mapping[str, float]
) -> None:
    """Draw one panel."""
    methods = list(dict.fromkeys(rows["method"]))
    score = rows.set_index(["method", "benchmark"])["score"]
    width = _GROUP / len(benchmarks)
    for group, method in enumerate(methods):
        for place, (name, colour) in enumerate(_coloured(benchmarks).items()):
            middle = group + width * (place - (len(benchmarks) - 1) / 2)
            value = score.get((method, name), math.nan)
            if not math.isnan(value):
                axes.bar(middle, value, 0.9 * width, color=colour)
            if name in base:
                ends = [middle - 0.45 * width, middle + 0.45 * width]
                axes.plot(ends, [base[name]] * 2, color=names.BLACK, linewidth=1)
    labels, shared = _labels(methods)
    axes.set_xticks(range(len(methods)), labels)
    axes.set_xlim(-0.55, len(methods) - 0.45)
    axes.tick_params(axis="x", length=0)
    name = names.dataset_name(str(rows["dataset"].iloc[0]))
    style.title(axes, f"{name}: {shared}" if shared else name)


def _labels(methods: Sequence[str]) -> tuple[list[str], str]:
    """The labels of the groups; if only the rules differ, also the anchors that all share."""
    parts = [names.mechanisms(method) for method in methods]
    rules = [rule for _, rule in parts]
    if len({anchors for anchors, _ in parts}) == 1 and len(set(rules)) == len(rules) > 1:
        shared = " + ".join(map(names.short_name, parts[0][0]))
        return [BY_TAG[rule].title for rule in rules], shared
    return [names.method_name(method) for method in methods], ""


def _coloured(benchmarks: Sequence[str]) -> dict[str, str]:
    return {name: _COLOURS[place % len(_COLOURS)] for place, name in enumerate(benchmarks)}
