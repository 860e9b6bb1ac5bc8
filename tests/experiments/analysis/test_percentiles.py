"""Percentile ranks of small searches, worked out by hand."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from experiments.paper.analysis.percentiles import percentile_bars, percentiles


def trace(*rows: tuple[int, str, float]) -> pd.DataFrame:
    """Rows of horizon, candidate, score."""
    table = pd.DataFrame(rows, columns=["horizon", "candidate", "score"])
    table["method"] = [name.split()[0] for name in table["candidate"]]
    return table


def values(table: pd.DataFrame) -> dict[tuple[int, str], float]:
    return {(row["horizon"], row["method"]): row["percentile"] for row in table.to_dict("records")}


def test_the_share_of_the_others_below_averaged_over_variants() -> None:
    found = percentiles(
        trace(
            (10, "sd a=1", 0.5),
            (10, "merge", 0.4),
            (10, "sd a=3", 0.3),
            (10, "si", 0.2),
            (10, "vanilla", 0.1),
            (20, "sd a=1", 0.4),
            (20, "merge", 0.5),
        )
    )
    assert values(found) == {
        (10, "merge"): 0.75,
        (10, "sd"): pytest.approx((1 + 0.5) / 2),
        (10, "si"): 0.25,
        (10, "vanilla"): 0.0,
        (20, "merge"): 1.0,
        (20, "sd"): 0.0,
    }
    assert found.loc[found["method"] == "sd", "variants"].tolist() == [2, 1]
    assert list(found["horizon"]) == sorted(found["horizon"])


def test_equal_scores_share_and_failures_are_last() -> None:
    found = percentiles(
        trace((1, "a", 0.5), (1, "b", 0.5), (1, "c", 0.0), (1, "d", math.nan), (1, "e", math.nan))
    )
    # a and b: 3 below and half of one; c: the two that failed; d and e: half of each other.
    expected = {"a": 3.5 / 4, "b": 3.5 / 4, "c": 0.5, "d": 0.125, "e": 0.125}
    assert values(found) == {(1, name): value for name, value in expected.items()}


def test_a_candidate_alone_has_no_rank() -> None:
    assert math.isnan(percentiles(trace((1, "a", 0.5)))["percentile"].item())


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
