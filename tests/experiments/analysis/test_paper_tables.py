"""The paper's tables as data: complete, in agreement with themselves, and where its text is not."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from experiments.paper import published as paper_tables
from experiments.paper.analysis.factorial import compositions
from experiments.paper.published import (
    DATASETS,
    LABELS,
    METRICS,
    dataset_table,
    paper_cells,
    paper_table,
)
from holdfast.analysis.configurations import configurations

from .tables import published, published_runs


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
