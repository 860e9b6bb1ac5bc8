"""The paper's tables as data, and what the analysis makes of its means and deviations.

The paper prints means and standard deviations to 0.1 points, so what follows from them is known
only within bounds. They are measured here, by drawing inputs that round to the printed ones.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from experiments.paper import published as paper_tables
from experiments.paper.analysis.factorial import Factorial, compositions, factorial, synergy
from experiments.paper.analysis.rankings import allocation_swap, build_up, ranks
from experiments.paper.published import (
    DATASETS,
    LABELS,
    METRICS,
    dataset_table,
    paper_cells,
    paper_table,
)
from holdfast.analysis.configurations import configurations
from holdfast.core.mechanisms import has

from .tables import everything_published, published, published_runs


def test_every_label_has_its_file_and_every_file_its_label() -> None:
    files = {path.stem for path in Path(paper_tables.__file__).parent.glob("*.csv")}
    assert {label.replace(":", "_").replace("-", "_") for label in LABELS} == files
    for label in LABELS:
        assert not paper_table(label).isna().any(axis=None), label


@pytest.mark.parametrize("dataset", DATASETS)
def test_the_per_configuration_tables_agree_with_themselves(dataset: str) -> None:
    # A slip of the pen shows here: the metrics are averages of one matrix.
    table = published(dataset)
    assert (table["final"].diff().dropna() <= 0).all()
    best = table["final"] + 0.99 * table["forget"]  # eq. metrics: T = 100, the last not counted
    assert ((best >= table["diag"] - 0.15) & (best <= 100.1)).all()
    # The last 50 tasks are half of all, the last 10 a fifth of those.
    assert (table["final"] >= table["w50"] / 2 - 0.075).all()
    assert (table["w50"] >= table["w10"] / 5 - 0.06).all()
    assert set(compositions()) < set(table.index)


@pytest.mark.parametrize("dataset", DATASETS)
def test_the_papers_cells_have_its_means_and_deviations(dataset: str) -> None:
    table = published(dataset)
    groups = paper_cells(dataset).groupby("method")
    for metric in METRICS:
        pd.testing.assert_series_equal(
            100 * groups[metric].mean().loc[table.index], table[metric], check_names=False
        )
        pd.testing.assert_series_equal(
            100 * groups[metric].std().loc[table.index], table[f"{metric}_sd"], check_names=False
        )


@pytest.mark.parametrize("dataset", DATASETS)
def test_the_published_tables_come_back_in_their_order(dataset: str) -> None:
    table = configurations(published_runs(dataset))
    expected = dataset_table("all", dataset)
    assert list(table["final"].mul(100).round(1)) == list(expected["final"])
    table = table.set_index("method").loc[expected["configuration"]]
    for metric in METRICS:
        for column in (metric, f"{metric}_sd"):
            assert list(table[column].mul(100).round(1)) == list(expected[column]), column


HALF = 0.05  # of the last printed place of a mean or deviation, in points
DRAWS = 2000
KINDS = ("effect", "f", "share")


@cache
def allowed(dataset: str) -> pd.DataFrame:
    """Lowest and highest effect, F, share and caption that round to the printed inputs, by term.

    A second, direct way to the numbers: all draws at once, from means and deviations. In points.
    """
    tags = compositions()
    table = published(dataset).loc[list(tags)]
    draw = np.random.default_rng(0).uniform(-HALF, HALF, (2, DRAWS, len(tags)))
    draw[:, 0] = 0  # the first is what is printed
    means = table["final"].to_numpy() + draw[0]
    deviations = np.maximum(table["final_sd"].to_numpy() + draw[1], 0)
    mean_square = (deviations**2).mean(axis=1)
    rmse = np.sqrt(mean_square)
    values = {"rmse": rmse, "standard_error": rmse / np.sqrt(12)}
    squares = []
    for term in dataset_table("anova", dataset)["term"]:
        sign = [(-1) ** sum(not has(tag, name) for name in term.split(":")) for tag in tags]
        effect = means @ np.array(sign) / 8
        squares.append(12 * effect**2)
        values[f"effect {term}"] = effect
        values[f"f {term}"] = squares[-1] / mean_square
    total = sum(squares) + 32 * mean_square
    for term, square in zip(dataset_table("anova", dataset)["term"], squares, strict=True):
        values[f"share {term}"] = 100 * square / total
    values["explained"] = 100 * sum(squares) / total
    bounds = {name: (drawn[0], drawn.min(), drawn.max()) for name, drawn in values.items()}
    return pd.DataFrame(bounds, index=["printed", "low", "high"]).T


@cache
def analysed(dataset: str) -> Factorial:
    return factorial(paper_cells(dataset))


def terms(dataset: str) -> pd.DataFrame:
    """The published ANOVA table beside what the analysis gives, in points and percentages."""
    ours = analysed(dataset).effects.set_index("term")
    theirs = dataset_table("anova", dataset).set_index("term")
    table = theirs.merge(ours, on="term", suffixes=("", "_ours"))
    table["effect_ours"] *= 100
    table["share"] *= 100
    return table


def within(value: float, bounds: pd.Series, rounding: float) -> bool:
    return bool(bounds["low"] - rounding <= value <= bounds["high"] + rounding)


@pytest.mark.parametrize("dataset", DATASETS)
def test_effects_f_p_and_shares(dataset: str) -> None:
    # Sixteen inputs with weight 1/8 move an effect by 0.1 at the very most; their standard
    # deviation of 0.029 each gives it one of 0.014, and no draw moves it by more than 0.06.
    for term, row in terms(dataset).iterrows():
        effect, f, share = (allowed(dataset).loc[f"{name} {term}"] for name in KINDS)
        assert row["effect_ours"] == pytest.approx(effect["printed"], abs=1e-9), term
        assert row["f_ours"] == pytest.approx(f["printed"], rel=1e-6, abs=1e-9), term
        assert row["share"] == pytest.approx(share["printed"], rel=1e-6, abs=1e-9), term
        assert effect["high"] - effect["low"] < 2 * 0.06, term
        assert share["high"] - share["low"] < 0.9, term
        assert within(row["effect"], effect, 0.005), (term, row["effect"], row["effect_ours"])
        assert within(row["f"], f, 0.05), (term, row["f"], row["f_ours"])
        assert within(row["percent_variance"], share, 0.05), (term, row["share"])
        low, high = stats.f.sf([f["high"], f["low"]], 1, 32)
        assert low <= row["p_ours"] <= high
        if row["p"] == "<1e-4":
            assert row["p_ours"] < 1e-4, term
        else:  # three digits
            assert 0.995 * low <= float(row["p"]) <= 1.005 * high, (term, row["p"], row["p_ours"])


@pytest.mark.parametrize("dataset", DATASETS)
def test_captions(dataset: str) -> None:
    result, bounds = analysed(dataset), allowed(dataset)
    caption = paper_table("app:res-anova").set_index("dataset").loc[dataset]
    assert (result.n, result.error_df) == (caption["n"], caption["error_df"]) == (48, 32)
    assert 100 * result.rmse == pytest.approx(bounds.loc["rmse", "printed"])
    assert 100 * result.r2 == pytest.approx(bounds.loc["explained", "printed"])
    assert within(caption["rmse"], bounds.loc["rmse"], 0.005)
    assert within(caption["standard_error"], bounds.loc["standard_error"], 0.005)
    assert round(100 * result.r2) == caption["percent_explained"]
    assert round(100 * result.standard_error, 1) == round(caption["standard_error"], 1)


def test_ranks_and_allocation_swap_are_the_papers() -> None:
    expected = paper_table("tab:app-factorial-ranks")
    ranking = ranks(everything_published()).round(2)
    pd.testing.assert_frame_equal(ranking, expected, check_dtype=False)
    # A difference of two means that are each known to 0.05, itself printed to 0.1.
    table = allocation_swap(everything_published()).set_index(["dataset", "allocation"])["change"]
    expected = paper_table("tab:allocation-swap").set_index(["dataset", "allocation"])["change"]
    assert set(table.index) == set(expected.index)
    for key, change in expected.items():
        assert abs(100 * table[key] - change) <= 2 * HALF + 0.05, key


def test_synergy_is_the_papers() -> None:
    # sec:res-factorial, to three and four roundings of a mean.
    table = synergy(everything_published())
    assert 100 * table["apart"].to_numpy() == pytest.approx([3.9, 7.7, 13.9], abs=1e-9)
    assert 100 * table["together"].to_numpy() == pytest.approx([15.6, 31.0, 46.9], abs=1e-9)


def test_build_up_reaches_the_winners_the_text_names() -> None:
    # sec:compositions names them; app:res-matrices says what the last addition lowers.
    path = build_up(everything_published())
    strongest = path[path["strongest"]].set_index("dataset")["method"]
    assert strongest.to_dict() == {
        "symbol_qa": "sd_replay_merge",
        "llm_qa": "si_sd_replay_merge",
        "real_qa": "si_replay_merge",
    }
    last = path[path["step"] == 4].set_index("dataset")["added"]
    assert last.to_dict() == {"symbol_qa": "si", "llm_qa": "sd", "real_qa": "sd"}
