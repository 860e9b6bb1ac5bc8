"""The paper's tables as data: complete, in agreement with themselves, and where its text is not."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from experiments.paper import published as paper_tables
from experiments.paper.published import (
    DATASETS,
    LABELS,
    METRICS,
    dataset_table,
    paper_cells,
    paper_table,
)
from holdfast.analysis.composition import compositions
from holdfast.analysis.configurations import configurations
from holdfast.core.errors import HoldfastError

from .published import published_runs
from .tables import published


def test_every_label_has_its_file_and_every_file_its_label() -> None:
    files = {path.stem for path in Path(paper_tables.__file__).parent.glob("*.csv")}
    assert {label.replace(":", "_").replace("-", "_") for label in LABELS} == files
    for label in LABELS:
        assert not paper_table(label).isna().any(axis=None), label


def test_sizes() -> None:
    lengths = {label: len(paper_table(label)) for label in LABELS}
    assert lengths == {
        "tab:anova": 45,
        "tab:rung-vs-canonical": 12,
        "tab:app-factorial-ranks": 16,
        "tab:app-all-symbol-qa": 21,
        "tab:app-all-llm-qa": 21,
        "tab:app-all-real-qa": 21,
        "app:res-anova": 3,
        "tab:app-anova-symbol-qa": 15,
        "tab:app-anova-llm-qa": 15,
        "tab:app-anova-real-qa": 15,
        "tab:allocation-swap": 6,
        "sec:res-time": 12,
        "app:res-capability": 11,
    }


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


def test_transfer_agrees_with_itself() -> None:
    # Of at most 9 compositions there are few enough orders to try them all.
    for row in paper_table("tab:rung-vs-canonical").itertuples():
        if row.compositions <= 6:
            assert any(
                (
                    round(moved.mean(), 1) == row.mean_displacement
                    and moved.max() == row.max_displacement
                    and round(1 - 6 * (moved**2).sum() / (n**3 - n), 2) == row.spearman
                    and sum(place < 3 for place in order[:3]) == row.top3_overlap
                )
                for n in [row.compositions]
                for order in itertools.permutations(range(n))
                for moved in [abs(np.array(order) - np.arange(n))]
            ), row


@pytest.mark.parametrize("dataset", DATASETS)
def test_the_long_table_agrees_with_itself(dataset: str) -> None:
    # F is the effect over its standard error, squared; p follows from F.
    caption = paper_table("app:res-anova").set_index("dataset").loc[dataset]
    for row in dataset_table("anova", dataset).itertuples():
        size = abs(row.effect)
        low = 12 * ((size - 0.005) / (caption["rmse"] + 0.005)) ** 2
        high = 12 * ((size + 0.005) / (caption["rmse"] - 0.005)) ** 2
        assert low - 0.05 <= row.f <= high + 0.05, row.term
        p = float(row.p.removeprefix("<"))
        lowest, highest = stats.f.sf([high, low], 1, 32)
        assert 0.995 * lowest <= p, row.term
        assert row.p.startswith("<") or p <= 1.005 * highest, row.term


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


def test_an_unknown_label_or_data_set_names_the_known_ones() -> None:
    with pytest.raises(HoldfastError, match='no table "tab:anovas" here; known: tab:anova, tab:'):
        paper_table("tab:anovas")
    with pytest.raises(HoldfastError, match="no data set symbols; it has symbol_qa, llm_qa, real"):
        paper_cells("symbols")


@pytest.mark.parametrize("dataset", DATASETS)
def test_the_published_tables_come_back_in_their_order(dataset: str) -> None:
    found = configurations(published_runs(dataset))
    expected = dataset_table("all", dataset)
    assert list(found["final"].mul(100).round(1)) == list(expected["final"])
    found = found.set_index("method").loc[expected["configuration"]]
    for metric in METRICS:
        for column in (metric, f"{metric}_sd"):
            assert list(found[column].mul(100).round(1)) == list(expected[column]), column
