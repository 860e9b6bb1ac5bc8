"""A study beside the paper: what it finds, what it leaves out, and that it says so."""

from __future__ import annotations

import math

import pandas as pd
import pytest
from scipy import stats

from experiments.paper.analysis.compare import compare
from experiments.paper.analysis.factorial import compositions
from experiments.paper.published import DATASETS, paper_cells
from holdfast.core.errors import HoldfastError

from .tables import cells, everything_published, published, without


def test_the_paper_agrees_with_itself() -> None:
    comparison = compare(everything_published())
    assert comparison.notes == ()
    assert comparison.flips.empty
    assert list(comparison.agreement["dataset"]) == list(DATASETS)
    assert (comparison.agreement[["methods", "terms", "same_sign"]] == [21, 15, 15]).all(axis=None)
    assert comparison.agreement["spearman"].to_list() == pytest.approx([1, 1, 1])
    pd.testing.assert_series_equal(
        comparison.compositions["final"], comparison.compositions["final_paper"], check_names=False
    )
    assert comparison.effects["significant"].equals(comparison.effects["significant_paper"])


def reversed_study() -> pd.DataFrame:
    """The sixteen compositions with the paper's means turned about: mean 0.5 - final."""
    table = paper_cells("llm_qa")
    table = table[table["method"].isin(list(compositions()))]
    return table.assign(final=0.5 - table["final"])


def test_a_reversed_study_disagrees_in_everything() -> None:
    comparison = compare(reversed_study())
    assert comparison.agreement["spearman"][0] == pytest.approx(-1)
    assert comparison.agreement["same_sign"][0] == 0
    assert comparison.agreement["flips"][0] == len(comparison.flips) == math.comb(16, 2)
    # The clearest flip: the paper's best and worst.
    assert comparison.flips.iloc[0].to_list() == ["llm_qa", "si_sd_replay_merge", "vanilla", 15, 15]
    assert comparison.flips["places"].is_monotonic_decreasing
    assert list(comparison.compositions["rank"]) == list(range(16, 0, -1))
    assert not comparison.effects["same_sign"].any()
    assert comparison.notes == (
        "llm_qa: not in the study: si_replay_olora, si_replay_osrm, olora, online_ewc, osrm",
    )


def test_flips_spearman_and_ranks_by_the_book() -> None:
    finals = {"vanilla": [0.3], "sd": [0.1], "replay": [0.2], "merge": [0.4], "online_ewc": [0.05]}
    comparison = compare(cells(finals, "llm_qa"))
    # In the paper: replay 7.5, online_ewc 4.5, merge 3.0, sd 2.8, vanilla 1.4.
    methods = ["replay", "online_ewc", "merge", "sd", "vanilla"]
    assert list(comparison.compositions["method"]) == methods
    assert list(comparison.compositions["rank"]) == [3, 5, 1, 4, 2]
    assert comparison.flips.to_numpy().tolist() == [
        ["llm_qa", "online_ewc", "vanilla", 3, 3],
        ["llm_qa", "replay", "merge", 2, 2],
        ["llm_qa", "replay", "vanilla", 1, 4],
        ["llm_qa", "online_ewc", "merge", 4, 1],
        ["llm_qa", "online_ewc", "sd", 1, 2],
        ["llm_qa", "sd", "vanilla", 2, 1],
    ]
    paper = published("llm_qa")["final"]
    expected = stats.spearmanr([finals[method][0] for method in finals], paper[list(finals)])
    assert comparison.agreement["spearman"][0] == pytest.approx(expected.statistic)


def test_a_part_of_the_factorial_is_compared_with_the_same_part() -> None:
    finals = {"vanilla": [0.1, 0.1], "replay": [0.2, 0.3], "merge": [0.3, 0.2]}
    comparison = compare(cells({**finals, "replay_merge": [0.2, 0.2]}, "mine"), "symbol_qa")
    effects = comparison.effects.set_index("term")
    # The paper's means: 1.0, 4.2, 1.7, 16.6.
    assert 100 * effects["effect_paper"]["replay"] == pytest.approx((3.2 + 14.9) / 2)
    assert 100 * effects["effect_paper"]["merge"] == pytest.approx((0.7 + 12.4) / 2)
    assert 100 * effects["effect_paper"]["replay:merge"] == pytest.approx((14.9 - 3.2) / 2)
    assert effects["same_sign"].to_dict() == {"replay": True, "merge": True, "replay:merge": False}
    assert set(comparison.compositions["dataset"]) == {"mine"}
    assert "mine: effects of the part of the factorial with replay, merge only" in comparison.notes
    assert "mine: final retention after 10 tasks, the paper's after 100" in comparison.notes


def test_what_is_incomplete_is_left_out_and_named() -> None:
    finals = {name: [0.1, 0.2, 0.3] for name in ("vanilla", "sd", "merge", "sd_merge")}
    table = without(cells(finals, "real_qa", 100), "merge", 2)
    started = cells({"replay": [0.9] * 3, "si_olora": [0.9] * 3}, "real_qa", 50)
    undefined = cells({"si": [0.5, math.nan, 0.5]}, "real_qa", 100)
    comparison = compare(pd.concat([table, started, undefined]))
    assert set(comparison.compositions["method"]) == {"vanilla", "sd", "sd_merge"}
    assert [note for note in comparison.notes if "left out" in note] == [
        f"real_qa: {method} is left out, it has not learned 100 tasks with each of seeds 1, 2, 3"
        for method in ("merge", "replay", "si")
    ]
    assert "real_qa: the paper has no si_olora" in comparison.notes
    assert list(comparison.effects["term"]) == ["sd"]


def test_data_sets_are_matched_by_name_or_given() -> None:
    finals = {"vanilla": [0.1], "sd": [0.2]}
    both = pd.concat([cells(finals, "mine"), cells(finals, "llm_qa")])
    comparison = compare(both)
    assert set(comparison.compositions["dataset"]) == {"llm_qa"}
    assert comparison.notes[0] == (
        "mine: not a data set of the paper, which has symbol_qa, llm_qa, real_qa"
    )
    with pytest.raises(HoldfastError, match="of mine and llm_qa; choose one"):
        compare(both, "llm_qa")
    with pytest.raises(HoldfastError, match="nothing to compare with the paper"):
        compare(cells(finals, "mine"))
    with pytest.raises(HoldfastError, match="the paper has no data set mine"):
        compare(cells(finals, "mine"), "mine")
    with pytest.raises(HoldfastError, match=r"nothing to compare .*the paper has no si_olora"):
        compare(cells({"si_olora": [0.1]}, "llm_qa"))
    with pytest.raises(HoldfastError, match="no finished cell"):
        compare(both[:0])
