"""Ranks, the greedy path, the swap of allocations and percentiles of a search, by hand."""

from __future__ import annotations

import math

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.paper.analysis.rankings import allocation_swap, build_up, rank, ranks
from experiments.paper.analysis.search import percentile_bars, percentiles
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
    table = ranks(cells({"merge": [0.5], "sd": [0.5], "vanilla": [0.5], "olora": [0.9]}))
    assert list(table["composition"]) == ["vanilla", "sd", "merge"]  # the factorial's order


@given(st.lists(st.integers(0, 20), min_size=1, max_size=10))
def test_a_rank_is_one_more_than_the_number_above(values: list[int]) -> None:
    expected = [1 + sum(other > value for other in values) for value in values]
    assert list(rank(pd.Series(values) / 20)) == expected
    assert list(rank(pd.Series([0.1 + 0.2, 0.3, 0.4]))) == [2, 2, 1]


def test_what_is_missing_is_refused_by_name() -> None:
    with pytest.raises(HoldfastError, match="b: replay has no cell with seed 2"):
        ranks(without(two_sets(), "replay", 2))
    lone = pd.concat([two_sets(), cells({"si": [0.1, 0.2]}, "a")])
    with pytest.raises(HoldfastError, match="b: si has no cell with seed 1"):
        ranks(lone)
    with pytest.raises(HoldfastError, match="no composition of SI, SD, replay and merge"):
        ranks(cells({"olora": [0.1]}))


STEPS = {
    "vanilla": [0.10, 0.10],
    "si": [0.15, 0.15],
    "sd": [0.30, 0.30],
    "merge": [0.20, 0.22],
    "si_sd": [0.35, 0.25],
    "si_merge": [0.90, 0.90],  # never reached: sd comes first
    "sd_merge": [0.40, 0.50],
    "si_sd_merge": [0.43, 0.43],
}


def test_each_step_adds_what_helps_most_and_goes_on_downhill() -> None:
    path = build_up(cells(STEPS), ["si", "sd", "merge"])
    assert path[["step", "added", "method", "strongest"]].to_numpy().tolist() == [
        [0, "", "vanilla", False],
        [1, "sd", "sd", False],
        [2, "merge", "sd_merge", True],
        [3, "si", "si_sd_merge", False],
    ]
    assert path["final"].to_list() == pytest.approx([0.1, 0.3, 0.45, 0.43])
    assert path["final_sd"][2] == pytest.approx(0.1 / 2**0.5)  # n - 1


def test_a_tie_goes_to_the_first_factor() -> None:
    table = cells({"vanilla": [0.1], "sd": [0.3], "merge": [0.3], "sd_merge": [0.3]})
    for first, second in (("merge", "sd"), ("sd", "merge")):
        path = build_up(table, [first, second])
        assert list(path["added"]) == ["", first, second]
        assert list(path["strongest"]) == [False, True, False]


def test_every_choice_needs_all_of_its_compositions() -> None:
    table = cells(STEPS)
    # Not beside the path, so not needed.
    build_up(without(without(table, "si_merge", 1), "si_merge", 2), ["si", "sd", "merge"])
    with pytest.raises(HoldfastError, match="here: si_sd has no cell with seed 2"):
        build_up(without(table, "si_sd", 2), ["si", "sd", "merge"])
    with pytest.raises(HoldfastError, match="here: none of vanilla has been learned"):
        build_up(table[table["method"] != "vanilla"], ["si", "sd", "merge"])


SWAPPED = {
    "sd_replay_merge": [0.9, 0.9],  # the best merged one, but without a partner
    "si_merge": [0.5, 0.7],
    "si_olora": [0.4, 0.5],
    "si_osrm": [0.8, 0.8],
    "merge": [0.1, 0.1],
    "olora": [0.99, 0.99],  # partner of a weaker one
    "si": [0.2, 0.2],
    "sd_osrm": [0.3, 0.3],  # partner of none
}


def test_the_best_merged_composition_with_a_partner_is_swapped() -> None:
    table = allocation_swap(cells(SWAPPED))
    assert table[["allocation", "merged", "swapped"]].to_numpy().tolist() == [
        ["olora", "si_merge", "si_olora"],
        ["osrm", "si_merge", "si_osrm"],
    ]
    assert table["change"].to_list() == pytest.approx([-0.15, 0.2])
    assert table["final_merged"].to_list() == pytest.approx([0.6, 0.6])
    assert table["final_swapped"].to_list() == pytest.approx([0.45, 0.8])


def test_one_partner_is_enough_and_a_data_set_without_any_has_no_row() -> None:
    one = cells({"merge": [0.3], "osrm": [0.2]}, "b")
    both = pd.concat([cells(SWAPPED, "a"), one, cells({"sd": [0.1]}, "c")])
    table = allocation_swap(both)
    assert list(table["dataset"]) == ["a", "a", "b"]
    assert table["change"][2] == pytest.approx(-0.1)


def test_a_swap_needs_both() -> None:
    with pytest.raises(HoldfastError, match="here: si_osrm has no cell with seed 2"):
        allocation_swap(without(cells(SWAPPED), "si_osrm", 2))
    with pytest.raises(HoldfastError, match="no composition both with merge and with olora"):
        allocation_swap(cells({"si_merge": [0.1], "sd_olora": [0.1]}))


def trace(*rows: tuple[int, str, float]) -> pd.DataFrame:
    """Rows of horizon, candidate, score."""
    table = pd.DataFrame(rows, columns=["horizon", "candidate", "score"])
    table["method"] = [name.split()[0] for name in table["candidate"]]
    return table


def values(table: pd.DataFrame) -> dict[tuple[int, str], float]:
    return {(row["horizon"], row["method"]): row["percentile"] for row in table.to_dict("records")}


def test_the_share_of_the_others_below_averaged_over_variants() -> None:
    first = {"sd a=1": 0.5, "merge": 0.4, "sd a=3": 0.3, "si": 0.2, "vanilla": 0.1}
    rows = [(10, *row) for row in first.items()]
    table = percentiles(trace(*rows, (20, "sd a=1", 0.4), (20, "merge", 0.5)))
    assert values(table) == {
        (10, "merge"): 0.75,
        (10, "sd"): pytest.approx((1 + 0.5) / 2),
        (10, "si"): 0.25,
        (10, "vanilla"): 0.0,
        (20, "merge"): 1.0,
        (20, "sd"): 0.0,
    }
    assert table.loc[table["method"] == "sd", "variants"].tolist() == [2, 1]
    assert list(table["horizon"]) == sorted(table["horizon"])


def test_equal_scores_share_and_failures_are_last() -> None:
    scores = {"a": 0.1 + 0.4, "b": 0.6 - 0.1, "c": 0.0, "d": math.nan, "e": math.nan}
    table = percentiles(trace(*((1, *row) for row in scores.items())))
    # a and b: 3 below and half of one; c: the two that failed; d and e: half of each other.
    expected = {"a": 3.5 / 4, "b": 3.5 / 4, "c": 0.5, "d": 0.125, "e": 0.125}
    assert values(table) == {(1, name): value for name, value in expected.items()}


def test_bars_average_the_data_sets_in_which_a_method_is_left() -> None:
    first = trace((1, "a", 0.3), (1, "b", 0.2), (1, "c", 0.1), (2, "a", 0.3), (2, "b", 0.2))
    second = trace((1, "b", 0.3), (1, "a", 0.2), (1, "c", 0.1), (2, "b", 0.3), (2, "d", 0.1))
    bars = percentile_bars({"one": first, "two": second}).set_index(["method", "horizon"])
    assert bars.loc[("a", 1), "percentile"] == pytest.approx(0.75)
    assert bars.loc[("b", 2), "percentile"] == pytest.approx(0.5)
    assert tuple(bars.loc[("a", 2)]) == (1.0, 1)  # gone from the second data set
    gone = bars.loc[("c", 2)]
    assert math.isnan(gone["percentile"]) and gone["datasets"] == 0
    assert len(bars) == 4 * 2
    assert percentile_bars({}).empty
