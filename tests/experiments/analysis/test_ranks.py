"""Ranks, ties and the worst rank."""

from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.paper.analysis.ranks import rank, ranks
from holdfast.core.errors import HoldfastError

from .tables import cells, without


def two_sets() -> pd.DataFrame:
    first = {"vanilla": [0.1, 0.1], "sd": [0.2, 0.4], "replay": [0.4, 0.4], "merge": [0.25, 0.35]}
    second = {"vanilla": [0.2, 0.2], "sd": [0.9, 0.9], "replay": [0.1, 0.1], "merge": [0.3, 0.3]}
    return pd.concat([cells(first, "b"), cells(second, "a")])


def test_ordered_by_the_worst_rank_and_then_by_the_mean() -> None:
    table = ranks(two_sets())
    assert list(table.columns) == ["composition", "b", "a", "k_m", "mean_rank"]
    # sd and merge tie on b at rank 2; nothing has rank 3 there.
    assert table.to_numpy().tolist() == [
        ["sd", 2, 1, 2, 1.5],
        ["merge", 2, 2, 2, 2.0],
        ["replay", 1, 4, 4, 2.5],
        ["vanilla", 4, 3, 4, 3.5],
    ]


def test_equal_in_both_keeps_the_order_of_the_factorial() -> None:
    table = ranks(cells({"merge": [0.5], "sd": [0.5], "vanilla": [0.5]}))
    assert list(table["composition"]) == ["vanilla", "sd", "merge"]
    assert list(table["here"]) == [1, 1, 1]


def test_means_equal_but_for_rounding_are_a_tie() -> None:
    assert list(rank(pd.Series([0.1 + 0.2, 0.3, 0.4]))) == [2, 2, 1]


@given(st.lists(st.integers(0, 20), min_size=1, max_size=10))
def test_a_rank_is_one_more_than_the_number_above(values: list[int]) -> None:
    expected = [1 + sum(other > value for other in values) for value in values]
    assert list(rank(pd.Series(values) / 20)) == expected


def test_other_methods_are_ranked_when_asked_for() -> None:
    table = cells({"olora": [0.9], "sd": [0.1], "online_ewc": [0.5]})
    assert list(ranks(table)["composition"]) == ["sd"]
    assert list(ranks(table, ["sd", "online_ewc", "olora"])["here"]) == [1, 2, 3]


def test_what_is_missing_is_refused_by_name() -> None:
    with pytest.raises(HoldfastError, match="b: replay has no cell with seed 2"):
        ranks(without(two_sets(), "replay", 2))
    lone = pd.concat([two_sets(), cells({"si": [0.1, 0.2]}, "a")])
    with pytest.raises(HoldfastError, match="b: si has no cell with seed 1"):
        ranks(lone)
    with pytest.raises(HoldfastError, match="no composition of SI, SD, replay and merge"):
        ranks(cells({"olora": [0.1]}))


def test_a_lower_mean_rank_does_not_make_up_for_a_worst_rank() -> None:
    first = {"replay": [0.9], "merge": [0.8], "sd": [0.7], "vanilla": [0.6]}
    second = {"vanilla": [0.9], "merge": [0.8], "sd": [0.7], "replay": [0.6]}
    table = ranks(pd.concat([cells(first, "b"), cells(second, "a")]))
    assert table[["composition", "k_m", "mean_rank"]].to_numpy().tolist() == [
        ["merge", 2, 2.0],
        ["sd", 3, 3.0],
        ["vanilla", 4, 2.5],
        ["replay", 4, 2.5],
    ]
