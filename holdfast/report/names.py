"""The names, colours and markers of methods and datasets in all figures."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import cycle
from typing import NamedTuple

from holdfast.core.mechanisms import (
    ALLOCATIONS,
    ANCHORS,
    BY_TAG,
    SHARED,
    VANILLA,
    has,
    settings_of,
    tag_of,
)

# Okabe and Ito's palette, which most colour-blind readers can distinguish.
ORANGE, SKY, GREEN = "#E69F00", "#56B4E9", "#009E73"
BLUE, VERMILION, PURPLE = "#0072B2", "#D55E00", "#CC79A7"
BLACK, GREY, PALE = "#000000", "#767676", "#DDDDDD"

_DATASETS = {"symbol_qa": "Symbol-QA", "llm_qa": "LLM-QA", "real_qa": "Real-QA"}
_LONGEST = 20  # characters of a dataset's name


class Look(NamedTuple):
    """The style of one method's line."""

    colour: str
    marker: str
    line: str


# In every figure, colour and marker show the anchors, the line style the allocation rule.
_LOOKS = {
    (): (GREY, "x"),
    ("si",): (SKY, "v"),
    ("sd",): (ORANGE, "s"),
    ("replay",): (PURPLE, "D"),
    ("si", "sd"): ("#8A7A00", "P"),  # the palette's yellow, dark enough for a thin line
    ("si", "replay"): (GREEN, "^"),
    ("sd", "replay"): (BLUE, "o"),
    ("si", "sd", "replay"): (VERMILION, "*"),
    ("online_ewc",): (BLACK, "X"),
}
_LINES = {SHARED: "--", "merge": "-", "olora": "-.", "osrm": ":"}


def mechanisms(method: str) -> tuple[tuple[str, ...], str]:
    """The anchors and the allocation rule of a tag.

    Unknown parts, the anchors of other packages, count together as one anchor.
    """
    tag = tag_of(method)
    rest = "_" if tag == VANILLA else f"_{tag}_"
    for name in (*ANCHORS, *ALLOCATIONS):
        rest = rest.replace(f"_{name}_", "_")
    known = [name for name in ANCHORS if has(method, name)]
    unknown = [rest.strip("_")] if rest != "_" else []
    rules = [name for name in ALLOCATIONS if has(method, name)]
    return (*known, *unknown), rules[0] if rules else SHARED


def looks(methods: Iterable[str]) -> dict[str, Look]:
    """A style for each method: fixed for the paper's anchors, an unused one for any others.

    If a method occurs with several settings, the first in the alphabet has the method's style and
    the others unused ones, so that the order of a table does not change the styles.
    """
    parts: dict[str, tuple[tuple[str, ...], str]] = {}
    methods = list(methods)
    for method in sorted(methods):
        anchors, allocation = mechanisms(method)
        again = (anchors, allocation) in parts.values()
        parts[method] = ((method,) if again else anchors), allocation
    fixed = {anchors: _LOOKS[anchors] for anchors, _ in parts.values() if anchors in _LOOKS}
    free = cycle([look for look in _LOOKS.values() if look not in fixed.values()] or [(BLACK, "h")])
    for anchors, _ in parts.values():
        if anchors not in fixed:
            fixed[anchors] = next(free)
    return {method: Look(*fixed[parts[method][0]], _LINES[parts[method][1]]) for method in methods}


def method_name(method: str) -> str:
    """``si_replay_merge`` as ``SI + R + M``; ``naive`` for a method without mechanisms.

    Its settings, if the name has any, follow: ``M, lora.rank=8``.
    """
    anchors, allocation = mechanisms(method)
    rule = () if allocation == SHARED else (allocation,)
    name = " + ".join(map(short_name, (*anchors, *rule))) or "naive"
    return plain(", ".join((name, *settings_of(method))))


def method_lines(method: str) -> str:
    """A method's name for narrow places, with each setting on a line of its own."""
    return "\n".join([method_name(tag_of(method)), *map(plain, settings_of(method))])


def short_name(mechanism: str) -> str:
    """``replay`` as ``R``; another package's mechanism by its own name."""
    entry = BY_TAG.get(mechanism)
    return mechanism if entry is None else entry.short


def dataset_name(dataset: str) -> str:
    """``symbol_qa`` as ``Symbol-QA``; an unknown name unchanged, but cut to 20 characters."""
    name = _DATASETS.get(dataset, dataset)
    return plain(name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…")


def plain(text: str) -> str:
    """Escape a name so that matplotlib draws it unchanged."""
    return text.replace("$", r"\$")  # a dollar sign would begin a formula


def datasets_in_order(names: Iterable[str]) -> list[str]:
    """The distinct datasets: the paper's in the paper's order, then the others by name."""
    rank = {name: place for place, name in enumerate(_DATASETS)}
    return sorted(set(names), key=lambda name: (rank.get(name, len(rank)), name))
