"""A paired bootstrap over seeds and tasks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from holdfast.analysis.study import Study, read_study
from holdfast.analysis.tables import analyse
from holdfast.analysis.uncertainty import differences, draws, interval, means, percentiles
from holdfast.report.matrices import plot_noise
from holdfast.results import diagonal, final, forget, window
from tests.analysis.synthetic import FACTORIAL, write_suite, write_trajectory

SEEDS = (41, 42, 43)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    return read_study(write_suite(tmp_path_factory.mktemp("s") / "suite", FACTORIAL, SEEDS, 12))


def test_the_interval_is_that_of_drawing_seeds_and_tasks_anew() -> None:
    values = np.random.default_rng(1).normal(0.1, 0.2, size=(4, 9))
    random = np.random.default_rng(2)
    means = [
        values[np.ix_(random.integers(4, size=4), random.integers(9, size=9))].mean()
        for _ in range(20_000)
    ]
    low, high = np.quantile(means, (0.025, 0.975))
    assert interval(values) == pytest.approx((low, high), abs=0.01)
    told = interval(values)
    draws.cache_clear()  # as another process begins
    assert interval(values) == told


def test_without_spread_there_is_no_width() -> None:
    assert interval(np.full((3, 7), 0.25)) == pytest.approx((0.25, 0.25))


def test_bounds_of_whole_numbers_go_outwards() -> None:
    assert percentiles(np.arange(40.0), whole=True) == (0, 39)  # 0.975 and 38.025


@pytest.mark.parametrize(("seeds", "least"), [(3, 0.93), (10, 0.93)])
def test_it_covers_the_truth_where_seeds_spread_less_than_tasks(seeds: int, least: float) -> None:
    random = np.random.default_rng(seeds)
    covered = 0
    for _ in range(150):
        noise = 0.02 * random.normal(size=(seeds, 1)) + 0.1 * random.normal(size=(1, 60))
        low, high = interval(0.3 + noise + 0.2 * random.normal(size=(seeds, 60)))
        covered += low <= 0.3 <= high
    assert covered / 150 >= least


def test_every_difference_is_that_of_the_means(study: Study) -> None:
    table = differences(study)
    table = table[table["metric"] != "half_life"]  # test_lifetimes.py
    assert len(table) == 16 * 15 / 2 * 4  # 12 tasks have no W(50)
    metric = {"final": final, "diag": diagonal, "forget": forget, "w10": lambda m: window(m, 10)}
    for row in table.to_dict("records"):
        means = {
            name: np.mean(
                [
                    metric[row["metric"]](study.matrices[path])
                    for path in study.cells.loc[study.cells["method"] == name, "path"]
                ]
            )
            for name in (row["method"], row["other"])
        }
        assert row["difference"] == pytest.approx(means[row["method"]] - means[row["other"]])
        assert (
            row["difference"] >= 0 and row["low"] - 1e-9 <= row["difference"] <= row["high"] + 1e-9
        )
        assert row["noise"] == (row["low"] <= 0 <= row["high"])


def test_means_are_those_of_the_configurations_with_intervals(study: Study) -> None:
    tables = analyse(study).tables
    table = tables["means"].set_index(["method", "metric"])
    for row in tables["configurations"].to_dict("records"):
        for metric in ("final", "diag", "forget", "w10"):
            told = table.loc[(row["method"], metric)]
            assert told["value"] == pytest.approx(row[metric])
            assert told["low"] - 1e-9 <= told["value"] <= told["high"] + 1e-9
    path = study.cells.query("method == 'merge'")["path"]
    values = np.array([study.matrices[one].accuracies()[-1, 1:-1] for one in path])
    assert tuple(table.loc[("merge", "final"), ["low", "high"]]) == interval(values)


def test_one_seed_has_means_and_no_interval(tmp_path: Path) -> None:
    write_trajectory(tmp_path / "a", "vanilla", 41, 5)
    table = means(read_study(tmp_path))
    assert set(table.loc[table["value"].isna(), "metric"]) == {"w10", "w50"}  # of five tasks
    assert table[["low", "high"]].isna().all(axis=None)


def test_a_metric_that_one_seed_lacks_has_no_mean(tmp_path: Path) -> None:
    """It was observed after the last task alone; a mean over the others would not compare."""
    for seed in SEEDS:
        write_trajectory(tmp_path / str(seed), "vanilla", seed, 4)
    path = tmp_path / "41" / "matrix.csv"
    header, *lines = path.read_text().splitlines(keepends=True)
    path.write_text(header + "".join(line for line in lines if line.startswith("4,")))
    table = means(read_study(tmp_path)).set_index("metric")
    assert table.loc[["final", "diag"], "value"].isna().tolist() == [False, True]
    assert np.isnan(table.at["diag", "low"])


def test_the_same_tasks_are_drawn_for_both(tmp_path: Path) -> None:
    """Tasks that are hard for all methods make no difference uncertain."""
    random = np.random.default_rng(0)
    for seed in SEEDS:
        hard = np.tril(np.tile(random.integers(2, 18, size=8), (8, 1)))
        for method, more in (("vanilla", 0), ("merge", 2)):
            correct = np.where(np.tri(8, dtype=bool), hard + more, 0)
            write_trajectory(tmp_path / f"{method}{seed}", method, seed, 8, correct=correct)
    table = differences(read_study(tmp_path)).set_index("metric")
    assert table.at["final", "method"] == "merge"
    assert (table.at["final", "low"], table.at["final", "high"]) == pytest.approx((0.1, 0.1))
    assert not table.at["final", "noise"]


def test_seeds_that_only_one_has_are_left_out(tmp_path: Path) -> None:
    for method, seeds in (("vanilla", (1, 2, 3)), ("merge", (2, 3, 4)), ("sd", (3,))):
        for seed in seeds:
            write_trajectory(tmp_path / f"{method}{seed}", method, seed, 4)
    table = differences(read_study(tmp_path))
    assert set(zip(table["method"], table["other"], table["seeds"], strict=True)) >= {
        ("merge", "vanilla", 2)
    }
    assert "sd" not in {*table["method"], *table["other"]}


def test_the_figure_greys_what_may_be_noise(study: Study) -> None:
    table = differences(study)
    (axes,) = plot_noise(table).axes
    finals = table[table["metric"] == "final"]
    cells = axes.images[0].get_array()
    grey = (cells[..., :3] == 0xDD / 255).all(axis=-1)
    assert (cells[..., 3] > 0).sum() == len(axes.texts) == len(finals)
    assert grey.sum() == finals["noise"].sum() > 0
