"""Task-level successive halving: horizons, numbers of survivors, scores and ranks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, PlainValidator, model_validator

from holdfast.core.config import Config
from holdfast.core.errors import HoldfastError
from holdfast.results.metrics import DECIMALS

Name = TypeVar("Name")  # a candidate's name or its index


def _checked_survivors(value: Any) -> Any:
    if value == "half" or (type(value) is int and value >= 1):
        return value
    raise ValueError("write half, or how many candidates go on: 1 or more")


class Schedule(Config):
    """The horizons of a search and how many candidates reach each.

    horizons: numbers of learned tasks, increasing; survivors: for each horizon but the last, the
    number of candidates promoted from it: a count, or ``half``, rounded up.
    Source: alg:search, app:search-cuts.
    """

    horizons: tuple[Annotated[int, Field(ge=1)], ...] = Field(min_length=1)
    survivors: tuple[Annotated[Literal["half"] | int, PlainValidator(_checked_survivors)], ...] = ()

    @model_validator(mode="after")
    def _makes_sense(self) -> Schedule:
        for horizon, following in itertools.pairwise(self.horizons):
            if horizon >= following:
                raise ValueError(f"horizons must increase, and {following} comes after {horizon}")
        cuts = len(self.horizons) - 1
        if len(self.survivors) != cuts:
            raise ValueError(
                f"{len(self.horizons)} horizons take {cuts} survivors, one for each horizon but "
                f"the last, and there are {len(self.survivors)}"
            )
        return self

    def sizes(self, candidates: int) -> list[int]:
        """How many of ``candidates`` reach each horizon if none fails, such as 90, 45, 23, 10.

        Raises HoldfastError when there is no candidate, or more survivors than candidates.
        """
        if candidates < 1:
            raise HoldfastError(f"schedule: {candidates} candidates; a search needs at least 1")
        sizes = [candidates]
        for horizon, count in zip(self.horizons, self.survivors, strict=False):
            size = math.ceil(sizes[-1] / 2) if count == "half" else count
            if size > sizes[-1]:
                raise HoldfastError(
                    f"schedule: {size} survivors at horizon {horizon}, and only {sizes[-1]} "
                    "candidates reach it; lower the count or widen the space"
                )
            sizes.append(size)
        return sizes

    def cost(self, candidates: int) -> int:
        """Tasks trained for one seed when each horizon continues from the one before it.

        Source: eq. app-search-cost.
        """
        added = (now - before for before, now in itertools.pairwise((0, *self.horizons)))
        return sum(size * tasks for size, tasks in zip(self.sizes(candidates), added, strict=True))

    def exhaustive(self, candidates: int) -> int:
        """Tasks trained for one seed when every candidate is advanced to the last horizon."""
        return candidates * self.horizons[-1]


def score(finals: Sequence[float]) -> float:
    """The mean over seeds of final retention, exactly independent of the order of the seeds.

    finals: one for each seed, at least one. Do not score a candidate with a failed seed: the mean
    over fewer seeds is not comparable.
    Source: eq. search-score.
    """
    assert finals
    return math.fsum(finals) / len(finals)


def rank(scores: Sequence[tuple[Name, float | None]]) -> list[tuple[Name, float | None]]:
    """Candidates from best to worst.

    scores: (name, score) in the order in which the space enumerates the candidates, which decides
    ties; a failed candidate has None or NaN and is ranked after all others.
    """
    # Sorting is stable, so equal candidates stay in the order of the space; NaN compares false with
    # everything, so it must not be a key. Equal means may differ by their rounding.
    return sorted(
        scores,
        key=lambda pair: (
            (True, 0.0) if _failed(pair[1]) else (False, -round(pair[1] or 0.0, DECIMALS))
        ),
    )


def survivors(scores: Sequence[tuple[Name, float | None]], count: int) -> list[Name]:
    """The names of the best ``count`` candidates, in ranked order.

    A failed candidate never survives: with fewer than ``count`` others, fewer survive, or none.
    scores: as for :func:`rank`; count: at least 1.
    """
    assert count >= 1
    return [name for name, value in rank(scores) if not _failed(value)][:count]


def _failed(value: float | None) -> bool:
    return value is None or math.isnan(value)
