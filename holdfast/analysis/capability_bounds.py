"""The uncertainty of a capability and of its change: items are drawn, and seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from holdfast.analysis.bootstrap import interval, percentiles, ratio_draws
from holdfast.results.capability import CapabilityRow, read_verdicts


@dataclass(frozen=True)
class Measured:
    """The result of one suite, and the directory of its boundary."""

    directory: Path
    row: CapabilityRow


@dataclass
class Bounds:
    """The bounds of values and of changes; what was read of the samples is kept for the next."""

    _read: dict[tuple[Path, str], dict[str, tuple[float, float]]] = field(default_factory=dict)

    def of(
        self, after: Sequence[Sequence[Measured]], before: Sequence[Measured] | None = None
    ) -> tuple[float, float, str]:
        """The 95% interval of a mean over seeds, or of its change, and what was drawn for it.

        after: by seed, the suites of which it is the unweighted mean, one or several; before: the
        same suites of the unmodified backbone, for the change. Drawn are ``items``, ``seeds`` or
        ``items and seeds``: items where the samples of all these are there, seeds where there are
        two; the bounds are NaN, and nothing is drawn, where neither is so.
        """
        base: list[Measured | None] = [None] * len(after[0]) if before is None else [*before]
        parts = [
            self._draws([seed[place] for seed in after], one, place)
            for place, one in enumerate(base)
        ]
        known = [part for part in parts if part is not None]
        if len(known) == len(parts):
            low, high = percentiles(np.mean(known, axis=0))
            return low, high, "items and seeds" if len(after) > 1 else "items"
        if len(after) > 1:
            earlier = fmean(one.row.value for one in before) if before else 0.0
            changes = [[fmean(one.row.value for one in seed) - earlier] for seed in after]
            return *interval(np.array(changes)), "seeds"
        return math.nan, math.nan, ""

    def _draws(
        self, after: Sequence[Measured], before: Measured | None, place: int
    ) -> NDArray[np.float64] | None:
        """One suite in each draw; None where samples are missing or are not of the same items."""
        seeds = [self._verdicts(one) for one in after]
        base = None if before is None else self._verdicts(before)
        asked = (seeds[0] if base is None else base).keys()
        if not asked or any(own.keys() != asked for own in seeds):
            return None
        suite = after[0].row.suite
        places = {
            unit: number for number, unit in enumerate(sorted({_unit(suite, one) for one in asked}))
        }
        values, weights = np.zeros((len(seeds), len(places))), np.zeros(len(places))
        for item in asked:
            number = places[_unit(suite, item)]
            weights[number] += seeds[0][item][1]
            earlier = 0.0 if base is None else base[item][0]
            values[:, number] += [own[item][0] - earlier for own in seeds]
        return ratio_draws(values, weights, place)

    def _verdicts(self, one: Measured) -> dict[str, tuple[float, float]]:
        key = (one.directory, one.row.suite)
        if key not in self._read:
            self._read[key] = read_verdicts(one.directory, one.row)
        return self._read[key]


def _unit(suite: str, item: str) -> str:
    """What is drawn as one: an item; of MGSM a problem, which is there in several languages."""
    return item.rpartition("/")[2] if suite == "mgsm" else item
