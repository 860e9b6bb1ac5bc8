"""Successive halving: the paper's numbers, and who goes on whatever the scores are."""

from __future__ import annotations

import itertools
import math
import re
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from holdfast.core.config import build
from holdfast.core.errors import HoldfastError
from holdfast.studies.halving import Schedule, rank, score, survivors

# Few values, so that ties are common.
SCORES = st.lists(st.sampled_from([None, math.nan, 0.0, -0.0, 0.25, 0.5, 1.0]), min_size=1)


def failed(value: float | None) -> bool:
    return value is None or math.isnan(value)


@given(
    horizons=st.sets(st.integers(1, 60), min_size=1, max_size=6).map(sorted),
    candidates=st.integers(1, 200),
)
def test_halving_is_never_dearer_and_leaves_someone(horizons: list[int], candidates: int) -> None:
    halves = ("half",) * (len(horizons) - 1)
    schedule = Schedule(horizons=tuple(horizons), survivors=halves)
    sizes = schedule.sizes(candidates)
    assert len(sizes) == len(horizons)
    assert all(2 * after - before in (0, 1) for before, after in itertools.pairwise(sizes))
    assert sizes[-1] >= 1
    # Counted from the other side: what one candidate trained when it left.
    leaving = [now - after for now, after in itertools.pairwise([*sizes, 0])]
    assert schedule.cost(candidates) == sum(map(math.prod, zip(leaving, horizons, strict=True)))
    assert schedule.cost(candidates) <= schedule.exhaustive(candidates)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"horizons": [2, 4]}, "2 horizons take 1 survivors"),
        ({"horizons": [2, 4], "survivors": [3, 2]}, "and there are 2"),
        ({"horizons": []}, "horizons = []"),
        ({"horizons": [0]}, "horizons.0 = 0"),
        ({"horizons": [4, 4], "survivors": [1]}, "horizons must increase, and 4 comes after 4"),
        ({"horizons": [2, 4], "survivors": [0]}, "survivors.0 = 0: write half, or how many"),
        ({"horizons": [2, 4], "survivors": [True]}, "survivors = [true]: is no number"),
        ({"horizons": [2, 4], "survivors": [1.5]}, "survivors.0 = 1.5: write half"),
    ],
)
def test_schedules_that_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(HoldfastError, match=re.escape(message)) as caught:
        build(Schedule, values, source="search.yaml")
    assert str(caught.value).startswith("search.yaml: ")
    assert "\n" not in str(caught.value)


def test_more_survivors_than_are_left() -> None:
    schedule = Schedule(horizons=(10, 20, 50), survivors=("half", 6))
    assert schedule.sizes(11) == [11, 6, 6]
    with pytest.raises(HoldfastError, match="6 survivors at horizon 20, and only 5 candidates"):
        schedule.sizes(10)
    with pytest.raises(HoldfastError, match="a search needs at least 1"):
        schedule.sizes(0)


def test_ties_and_failures() -> None:
    scores = [("a", 0.5), ("b", None), ("c", 0.75), ("d", math.nan), ("e", 0.5), ("f", 0.0)]
    assert [name for name, _ in rank(scores)] == ["c", "a", "e", "f", "b", "d"]
    assert survivors(scores, 2) == ["c", "a"]
    assert survivors(scores, 5) == ["c", "a", "e", "f"]
    assert survivors([("a", None), ("b", math.nan)], 1) == []
    # 653 of 1,000 in two orders of summing.
    ties = [("first", 0.6529999999999999), ("second", 0.653)]
    assert survivors(ties, 1) == ["first"]


@given(SCORES)
def test_ranking_orders_everyone_once(values: list[float | None]) -> None:
    ranked = rank(list(enumerate(values)))
    assert sorted(place for place, _ in ranked) == list(range(len(values)))
    for (place, value), (later, lower) in itertools.pairwise(ranked):
        if failed(value):
            assert failed(lower) and place < later
        elif not failed(lower):
            assert value > lower or (value == lower and place < later)  # type: ignore[operator]


@given(SCORES, st.integers(1, 10), st.data())
def test_a_better_score_never_costs_the_place(
    values: list[float | None], count: int, data: st.DataObject
) -> None:
    chosen = survivors(list(enumerate(values)), count)
    assert len(chosen) == min(count, sum(not failed(value) for value in values))
    assume(chosen)
    winner = data.draw(st.sampled_from(chosen))
    better = [2.0 if place == winner else value for place, value in enumerate(values)]
    assert set(survivors(list(enumerate(better)), count)) == set(chosen)


def test_the_score_is_the_mean() -> None:
    assert score([0.25, 0.5, 0.75]) == 0.5
    # A plain sum gives another number in this order than in the reverse one.
    assert sum([0.1, 0.2, 0.3]) != sum([0.3, 0.2, 0.1])
    assert score([0.1, 0.2, 0.3]) == score([0.3, 0.2, 0.1])
