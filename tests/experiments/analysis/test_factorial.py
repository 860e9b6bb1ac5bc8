"""Tags, and the factorial against least squares, analysis of variance, and by hand."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from experiments.paper.analysis.factorial import (
    FACTORS,
    composition,
    compositions,
    effect_contrasts,
    factorial,
    synergy,
)
from experiments.paper.analysis.tables import analyse
from holdfast.allocation import ALLOCATIONS as RULES
from holdfast.analysis.study import read_study
from holdfast.anchors import ANCHORS as LEARNED
from holdfast.core.errors import HoldfastError
from holdfast.core.mechanisms import ALLOCATIONS, ANCHORS, has
from holdfast.learning.method import parse_method
from tests.analysis.synthetic import FACTORIAL, write_suite

from .tables import cells, without


def test_the_mechanisms_are_those_of_the_learner() -> None:
    # Written down again in the analysis, which may not import them: this keeps them the same.
    assert tuple(LEARNED) == ANCHORS
    assert tuple(RULES) == ("shared", *ALLOCATIONS)


@pytest.mark.parametrize("rule", ["", *ALLOCATIONS])
def test_a_tag_is_the_learners_and_reads_back(rule: str) -> None:
    for size in range(len(ANCHORS) + 1):
        for anchors in itertools.combinations(ANCHORS, size):
            present = {*anchors, rule} - {""}
            tag = composition(sorted(present, reverse=True))
            assert parse_method(tag).tag == tag
            assert {name for name in (*ANCHORS, *ALLOCATIONS) if has(tag, name)} == present


def test_the_factorial_has_every_composition_once_with_its_levels() -> None:
    table = compositions()
    assert len(table) == 16
    assert list(table)[:4] == ["vanilla", "si", "sd", "si_sd"]
    assert list(table)[-1] == "si_sd_replay_merge"
    for tag, levels in table.items():
        assert levels == tuple(has(tag, factor) for factor in FACTORS)
    assert compositions(["merge", "sd"]) == {
        "vanilla": (False, False),
        "merge": (True, False),
        "sd": (False, True),
        "sd_merge": (True, True),
    }


def random_cells(factors: tuple[str, ...], seeds: int, seed: int) -> pd.DataFrame:
    draw = np.random.default_rng(seed)
    return cells({tag: draw.uniform(size=seeds) for tag in compositions(factors)})


DESIGNS = st.tuples(
    st.integers(1, 4).flatmap(lambda k: st.sampled_from(list(itertools.combinations(FACTORS, k)))),
    st.integers(2, 5),
    st.integers(0, 2**32 - 1),
)


@given(DESIGNS)
@settings(max_examples=25, deadline=None)
def test_equals_least_squares(design: tuple[tuple[str, ...], int, int]) -> None:
    factors, seeds, seed = design
    table = random_cells(factors, seeds, seed)
    others = cells({"online_ewc": [9.0], "si_olora": [9.0, 8.0]})  # are no part of it
    result = factorial(pd.concat([table[::-1], others]), factors)
    # Regression on +-1/2, the product of signs for an interaction: its coefficients are effects.
    words = table["method"].str.split("_")
    signs = {name: np.array([1 if name in tag else -1 for tag in words]) for name in factors}
    terms = list(result.effects["term"])
    columns = [np.prod([signs[name] for name in term.split(":")], axis=0) / 2 for term in terms]
    x = np.column_stack([np.ones(len(table)), *columns])
    y = table["final"].to_numpy()
    coefficients, (residual,), size, _ = np.linalg.lstsq(x, y)
    assert size == len(terms) + 1 == 2 ** len(factors)
    np.testing.assert_allclose(result.effects["effect"], coefficients[1:], atol=1e-12)

    total = ((y - y.mean()) ** 2).sum()
    assert (result.n, result.error_df) == (len(y), len(y) - size)
    assert math.isclose(result.rmse, math.sqrt(residual / result.error_df))
    assert math.isclose(result.r2, 1 - residual / total)
    covariance = np.linalg.inv(x.T @ x) * residual / result.error_df
    np.testing.assert_allclose(np.sqrt(np.diag(covariance))[1:], result.standard_error)
    # Leaving a term out raises the residual by its sum of squares; its F is the t squared.
    reduced = np.linalg.lstsq(np.delete(x, 1, axis=1), y)[1]
    assert math.isclose(result.effects["sum_of_squares"][0], reduced[0] - residual)
    np.testing.assert_allclose(result.effects["share"], result.effects["sum_of_squares"] / total)
    t = coefficients[1:] / result.standard_error
    np.testing.assert_allclose(result.effects["f"], t**2, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(
        result.effects["p"], 2 * stats.t.sf(np.abs(t), result.error_df), rtol=1e-6, atol=1e-12
    )


def test_two_factors_by_hand() -> None:
    # Means 0.1, 0.2, 0.3, 0.8: merge (0.1 + 0.5) / 2, replay (0.2 + 0.6) / 2, and the gain of
    # replay with merge (0.6) less that without (0.2), halved as the main effects' standard error
    # asks. The sum of squares is n / 4 = 2 times the square; each cell has error 2 * 0.01^2.
    means = {"vanilla": 0.1, "merge": 0.2, "replay": 0.3, "replay_merge": 0.8}
    finals = {method: [mean - 0.01, mean + 0.01] for method, mean in means.items()}
    result = factorial(cells(finals), ["replay", "merge"])
    assert list(result.effects["term"]) == ["replay", "merge", "replay:merge"]
    np.testing.assert_allclose(result.effects["effect"], [0.4, 0.3, 0.2])
    np.testing.assert_allclose(result.effects["sum_of_squares"], [0.32, 0.18, 0.08])
    np.testing.assert_allclose(result.effects["f"], [1600, 900, 400])
    np.testing.assert_allclose(result.effects["share"], np.array([320, 180, 80]) / 580.8)
    assert (result.n, result.error_df) == (8, 4)
    assert result.rmse == pytest.approx(0.01 * math.sqrt(2))
    assert result.standard_error == pytest.approx(0.01)
    assert result.r2 == pytest.approx(580 / 580.8)


def test_one_seed_has_effects_and_no_error() -> None:
    result = factorial(random_cells(("sd", "merge"), 1, 2), ["sd", "merge"])
    assert result.effects["effect"].notna().all()
    assert result.effects[["f", "p"]].isna().all(axis=None)
    assert math.isnan(result.rmse) and math.isnan(result.standard_error)
    assert result.error_df == 0


def refused(table: pd.DataFrame, message: str) -> None:
    with pytest.raises(HoldfastError, match=message) as caught:
        factorial(table)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("seeds", [2, 3])
def test_rounding_is_no_effect(seeds: int) -> None:
    """Gains that add up exactly have no interaction, whatever their sums round to."""
    gains = {"si": 0.03, "sd": 0.07, "replay": 0.2, "merge": 0.05}
    means = {
        tag: 0.1 + sum(gain for name, gain in gains.items() if name in tag.split("_"))
        for tag in compositions(FACTORS)
    }
    effects = factorial(cells({tag: [mean] * seeds for tag, mean in means.items()})).effects
    alone = effects.set_index("term").loc[list(gains)]
    np.testing.assert_allclose(alone["effect"], list(gains.values()), rtol=1e-9)
    assert np.isinf(alone["f"]).all() and (alone["p"] == 0).all()
    rest = effects[effects["term"].str.contains(":")]
    assert len(rest) == 11 and (rest["effect"] == 0).all() and rest["f"].isna().all()


def test_what_is_not_balanced_is_refused_by_name() -> None:
    table = random_cells(FACTORS, 3, 3)
    refused(without(table, "si_sd_merge", 2), "here: si_sd_merge has no cell with seed 2;")
    refused(table[table["method"] != "sd"], r"here: sd has no cell with seed 1 \(and 2 more")
    again = table[(table["method"] == "replay") & (table["seed"] == 3)]
    refused(pd.concat([table, again]), "here: replay with seed 3 is there twice")
    refused(pd.concat([table, table.assign(dataset="there")]), "of here and there; choose one")
    refused(table[table["method"] == "none"], "no finished cell")
    refused(cells({"olora": [0.1]}), "here: none of vanilla, si, .* has been learned")


def test_what_is_not_comparable_is_refused_by_name() -> None:
    table = random_cells(FACTORS, 2, 4).reset_index(drop=True)
    for column, value, message in (
        ("horizon", 7, "vanilla with seed 1 and sd with seed 2 have different horizons, 10 and 7"),
        (
            "order_seed",
            1234,
            "sd with seed 2 have different task orders, the stream's own and 1234",
        ),
        ("final", math.nan, "here: final of sd with seed 2 is not defined"),
    ):
        changed = table.copy()
        changed.loc[5, column] = value
        refused(changed, message)
    other = table.assign(order_seed=1234).astype({"order_seed": "Int64"})
    other.loc[5, "order_seed"] = pd.NA
    refused(other, "different task orders, 1234 and the stream's own")
    assert factorial(table.assign(order_seed=1234)).n == 32
    with pytest.raises(HoldfastError, match="here: the cells have no finale"):
        factorial(table, response="finale")


def test_synergy_is_gain_over_vanilla() -> None:
    finals = {"vanilla": [0.1], "si": [0.3], "sd": [0.2], composition(["si", "sd"]): [0.9]}
    table = synergy(cells(finals), "sd", "si")
    assert table["apart"][0] == pytest.approx(0.3)
    assert table["together"][0] == pytest.approx(0.8)
    with pytest.raises(HoldfastError, match="here: sd has no cell with seed 1"):
        synergy(without(cells(finals), "sd", 1), "sd", "si")


def test_effects_synergy_and_steps_have_intervals(tmp_path: Path) -> None:
    study = read_study(write_suite(tmp_path / "suite", FACTORIAL, (41, 42, 43), 4))
    analysis = analyse(study)
    effects = analysis.tables["effects"]
    finals = study.cells.groupby("method")["final"].mean()
    factors = ("si", "sd", "replay", "merge")
    contrasts = effect_contrasts(effects["term"], factors)
    values = [sum(finals[name] * share for name, share in each.items()) for each in contrasts]
    assert values == pytest.approx(list(effects["effect"]))
    steps = analysis.tables["build_up"]
    assert np.isnan(steps["gain"][0]) and np.isnan(steps["low"][0])
    synergies = analysis.tables["synergy"]
    for table, value in ((effects, "effect"), (synergies, "difference"), (steps[1:], "gain")):
        assert table[value].between(table["low"], table["high"]).all()
