"""Which mechanisms a method's tag composes, and the tags of a factorial."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence

from holdfast.core.errors import HoldfastError
from holdfast.core.mechanisms import ALLOCATIONS, ANCHORS, VANILLA, tag_of

FACTORS = ("si", "sd", "replay", "merge")  # of the paper's 2^4 factorial, sec:results


def has(method: str, mechanism: str) -> bool:
    """Whether a method's name, with or without settings, contains a mechanism."""
    return f"_{mechanism}_" in f"_{tag_of(method)}_"


def composition(present: Collection[str]) -> str:
    """The canonical tag of a set of mechanisms; ``vanilla`` for none.

    present: names of anchors and of at most one allocation rule, in any order.
    Raises HoldfastError for an unknown name or two rules.
    """
    unknown = sorted(set(present) - {*ANCHORS, *ALLOCATIONS})
    if unknown:
        names = ", ".join((*ANCHORS, *ALLOCATIONS))
        raise HoldfastError(f'composition: "{unknown[0]}" is no mechanism; known: {names}')
    rules = [rule for rule in ALLOCATIONS if rule in present]
    if len(rules) > 1:
        raise HoldfastError(
            f"composition: {' and '.join(rules)} are both allocation rules; choose one"
        )
    return "_".join([anchor for anchor in ANCHORS if anchor in present] + rules) or VANILLA


def compositions(factors: Sequence[str] = FACTORS) -> dict[str, tuple[bool, ...]]:
    """The 2^k tags of a full factorial, each with the level of every factor, in ``factors``' order.

    In standard order: the first factor changes fastest, ``vanilla`` comes first.
    Raises HoldfastError as :func:`composition` does, and for a factor named twice.
    """
    repeated = [factor for factor in dict.fromkeys(factors) if factors.count(factor) > 1]
    if repeated:
        raise HoldfastError(f"factors: {repeated[0]} is named twice; name it once")
    levels = (
        reversed_levels[::-1]
        for reversed_levels in itertools.product((False, True), repeat=len(factors))
    )
    return {composition(list(itertools.compress(factors, row))): row for row in levels}
