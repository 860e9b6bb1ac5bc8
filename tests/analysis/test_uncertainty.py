"""A paired bootstrap over seeds and tasks; a half-life is taken anew in every draw."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from holdfast.analysis import Analysis, Study, analyse, read_study
from holdfast.analysis.uncertainty import (
    Lifetime,
    differences,
    draws,
    half_life_differences,
    interval,
    means,
    percentiles,
    recall_by_age,
)
from holdfast.report.matrices import plot_noise
from holdfast.results import half_life, retention_by_age
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
    before = interval(values)
    draws.cache_clear()  # as another process begins
    assert interval(values) == before


def test_bounds_of_whole_numbers_go_outwards() -> None:
    assert percentiles(np.arange(40.0), whole=True) == (0, 39)  # 0.975 and 38.025


def test_every_difference_is_that_of_the_means(study: Study) -> None:
    table = differences(study)
    table = table[table["metric"] != "half_life"]  # test_differences_are_those_of_the_half_lives
    assert len(table) == 16 * 15 / 2 * 4  # 12 tasks have no W(50)
    means = study.cells.groupby("method")[["final", "diag", "forget", "w10"]].mean()
    for row in table.to_dict("records"):
        better, worse = means.loc[[row["method"], row["other"]], row["metric"]]
        assert row["difference"] == pytest.approx(better - worse) and row["difference"] >= 0
        assert row["low"] - 1e-9 <= row["difference"] <= row["high"] + 1e-9
        assert row["noise"] == (row["low"] <= 0 <= row["high"])


def test_means_are_those_of_the_configurations_with_intervals(study: Study) -> None:
    tables = analyse(study).tables
    table = tables["means"].set_index(["method", "metric"])
    for row in tables["configurations"].to_dict("records"):
        for metric in ("final", "diag", "forget", "w10"):
            estimate = table.loc[(row["method"], metric)]
            assert estimate["value"] == pytest.approx(row[metric])
            assert estimate["low"] - 1e-9 <= estimate["value"] <= estimate["high"] + 1e-9
    path = study.cells.query("method == 'merge'")["path"]
    values = np.array([study.matrices[place].accuracies()[-1, 1:-1] for place in path])
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


def test_a_bound_that_is_zero_but_for_rounding_encloses_zero(tmp_path: Path) -> None:
    finals = {
        "merge": ("19 1 8 2 9 16 13 13", "10 7 7 6 19 20 5 17", "9 9 11 7 18 2 3 6"),
        "vanilla": ("19 2 8 2 9 14 13 13", "10 4 5 4 20 20 5 15", "6 7 11 7 18 2 0 6"),
    }
    for method, rows in finals.items():
        for seed, row in zip(SEEDS, rows, strict=True):
            correct = np.tril(np.tile(np.array(row.split(), dtype=int), (8, 1)))
            write_trajectory(tmp_path / f"{method}{seed}", method, seed, 8, correct=correct)
    final = differences(read_study(tmp_path)).set_index("metric").loc["final"]
    assert 0 <= final["low"] < 1e-12 < final["high"]
    assert final["noise"]


def test_seeds_that_only_one_has_are_left_out(tmp_path: Path) -> None:
    for method, seeds in (("vanilla", (1, 2, 3)), ("merge", (2, 3, 4)), ("sd", (3,))):
        for seed in seeds:
            write_trajectory(tmp_path / f"{method}{seed}", method, seed, 4)
    table = differences(read_study(tmp_path))
    assert set(table.query("method == 'merge' and other == 'vanilla'")["seeds"]) == {2}
    assert "sd" not in {*table["method"], *table["other"]}


def test_the_figure_greys_what_may_be_noise(study: Study) -> None:
    table = differences(study)
    (axes,) = plot_noise(table).axes
    finals = table[table["metric"] == "final"]
    cells = axes.images[0].get_array()
    grey = (cells[..., :3] == 0xDD / 255).all(axis=-1)
    assert (cells[..., 3] > 0).sum() == len(axes.texts) == len(finals)
    assert grey.sum() == finals["noise"].sum() > 0


def test_a_better_one_that_stands_below_is_drawn_too() -> None:
    """One that wins fewer pairs, since it has fewer seeds in common with others."""
    pairs = [("merge", "vanilla"), ("merge", "si"), ("si", "vanilla"), ("replay", "merge")]
    columns = {"dataset": "symbol_qa", "metric": "final", "difference": 0.2, "noise": False}
    table = pd.DataFrame([{"method": method, "other": other, **columns} for method, other in pairs])
    (axes,) = plot_noise(table).axes
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    assert len(axes.texts) == 4
    for text in axes.texts:
        x, y = text.get_position()
        assert left < x < right and high < y < low


def made(random: np.random.Generator, tasks: int, life: float, spread: float) -> np.ndarray:
    """Recall by task and age, each task with a life of its own, with the noise of 20 items."""
    lives = life * np.exp(spread * random.normal(size=(tasks, 1)))
    recall = random.binomial(20, np.exp(-np.arange(tasks) / lives)) / 20
    return np.where(np.add.outer(np.arange(tasks), np.arange(tasks)) < tasks, recall, np.nan)


def plain(seeds: list[np.ndarray], by_seed: np.ndarray, by_task: np.ndarray) -> tuple[float, float]:
    """One draw, slowly: each seed and task as often as it was drawn, its curve by the mean.

    The least and the most that its half-life may be.
    """
    curves = []
    for values, times in zip(seeds, np.rint(by_seed * len(seeds)).astype(int), strict=True):
        drawn = np.repeat(values, np.rint(by_task * len(values)).astype(int), axis=0)
        rows = [column[~np.isnan(column)] for column in drawn.T]
        curve = np.array([row.mean() if len(row) else np.nan for row in rows])
        curves += [curve] * times
    mean = np.mean(curves, axis=0)
    for age, value in enumerate(mean):
        if np.isnan(value):
            return age, len(mean)
        if value < mean[0] / 2 - 1e-12:
            return age, age
    return len(mean), len(mean)


def test_each_draw_is_the_half_life_of_what_it_drew() -> None:
    random = np.random.default_rng(0)
    seeds = [made(random, 9, 5.0, 0.6) for _ in range(3)]
    seeds[1][1:, 2] = np.nan  # observed of one task, which some draws lack
    by_seed, by_task = draws(3, 9)
    least, most = Lifetime(seeds).drawn
    assert len(set(most)) > 3 and 9 in most and (least < most).any()
    for place in range(200):
        assert (least[place], most[place]) == plain(seeds, by_seed[place], by_task[place])


@pytest.fixture(scope="module")
def longer(tmp_path_factory: pytest.TempPathFactory) -> tuple[Study, Analysis]:
    """Of 14 tasks, within which two methods do not halve."""
    study = read_study(write_suite(tmp_path_factory.mktemp("longer") / "suite", tasks=14))
    return study, analyse(study)


def test_it_is_the_half_life_of_the_table(longer: tuple[Study, Analysis]) -> None:
    study, analysis = longer
    tables = analysis.tables
    halves = tables["half_lives"].set_index("method")
    means = tables["means"].query("metric == 'half_life'").set_index("method")
    assert halves["half_life"].equals(means.loc[halves.index, "value"])
    assert halves["half_life"].isna().any() and (halves["seeds"] == 3).all()
    bounded = halves[halves["high"].notna() & halves["half_life"].notna()]
    assert len(bounded) > 5
    assert bounded["half_life"].between(bounded["low"], bounded["high"]).all()
    for path, matrix in list(study.matrices.items())[:9]:
        life = Lifetime([recall_by_age(matrix)])
        value = half_life(matrix) or np.nan
        assert life.within_horizon(life.value) == pytest.approx(value, nan_ok=True), path
        assert np.nanmean(recall_by_age(matrix), axis=0) == pytest.approx(retention_by_age(matrix))


def test_differences_are_those_of_the_half_lives(longer: tuple[Study, Analysis]) -> None:
    tables = longer[1].tables
    table = tables["differences"].query("metric == 'half_life'")
    halves = tables["half_lives"].set_index("method")["half_life"]
    assert halves.isna().sum() == 2
    assert len(table) == 16 * 15 / 2 - 1  # of two that do not halve nothing is known
    for row in table.to_dict("records"):
        longer_age, age = (halves.fillna(14)[row[name]] for name in ("method", "other"))
        assert row["difference"] == longer_age - age >= 0
        assert row["low"] <= row["difference"] <= row["high"]
        assert row["noise"] == (row["low"] <= 0 <= row["high"])
    assert table["noise"].any() and not table["noise"].all()


def test_a_curve_that_may_not_halve_has_no_upper_bound(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    seeds = {seed: made(random, 20, 20.0, 0.7) for seed in (1, 2)}
    life = Lifetime(list(seeds.values()))
    low, high = life.bounds()
    assert low < 20 == high and np.isnan(life.within_horizon(high))
    assert np.isnan(Lifetime([seeds[1]]).bounds()).all()
    apart = list(half_life_differences({"a": seeds, "b": {1: seeds[1], 3: seeds[2]}}))
    assert apart == []  # one seed in common


def test_what_was_never_learned_has_no_half_life() -> None:
    random = np.random.default_rng(3)
    seeds = {seed: made(random, 20, 5.0, 0.3) for seed in (1, 2)}
    nothing = {seed: 0.0 * values for seed, values in seeds.items()}
    life = Lifetime(list(nothing.values()))
    assert np.isnan(life.within_horizon(life.value)) and np.isnan(life.bounds()).all()
    assert list(half_life_differences({"a": seeds, "b": nothing})) == []


def test_a_difference_is_of_the_seeds_that_both_have() -> None:
    random = np.random.default_rng(3)
    seeds = {seed: made(random, 20, 5.0, 0.3) for seed in (1, 2)}
    (apart,) = half_life_differences({"a": {**seeds, 3: made(random, 20, 40.0, 0.3)}, "b": seeds})
    assert apart == ("a", "b", 0, 0, 0, 2)


@pytest.mark.parametrize(("seed_spread", "least", "most"), [(0.05, 0.88, 1.0), (0.8, 0.3, 0.9)])
def test_half_lives_cover_the_truth_where_seeds_spread_less_than_tasks(
    seed_spread: float, least: float, most: float
) -> None:
    """The sibling shows that three seeds say little about seeds, as docs/analysis.md says."""
    random = np.random.default_rng(5)
    spread = np.hypot(0.5, seed_spread)
    lives = 10 * np.exp(spread * random.normal(size=100_000))
    curve = np.array([np.exp(-age / lives).mean() for age in range(40)])
    truth, covered = int(np.argmax(curve < curve[0] / 2)), 0
    for _ in range(60):
        seeds = [
            made(random, 40, 10 * np.exp(seed_spread * random.normal()), 0.5) for _ in range(3)
        ]
        low, high = Lifetime(seeds).bounds()
        covered += low <= truth <= high
    assert least <= covered / 60 <= most


def test_ages_that_a_draw_has_not_observed_leave_it_open_when_it_halved() -> None:
    """With ``evaluation.rows=horizon`` one task was asked at each age: it says little."""
    random = np.random.default_rng(4)
    whole = {
        life: {seed: made(random, 40, life, 0.1) for seed in (1, 2, 3)} for life in (12.0, 6.0)
    }
    last = np.fliplr(np.eye(40, dtype=bool))
    last[:, 0] = True  # each task is asked when it is learned
    asked = {
        life: {seed: np.where(last, values, np.nan) for seed, values in seeds.items()}
        for life, seeds in whole.items()
    }
    dense, sparse = (Lifetime(list(curves[12.0].values())) for curves in (whole, asked))
    assert dense.bounds()[1] - dense.bounds()[0] <= 3
    low, high = sparse.bounds()
    assert low <= sparse.value < 40 and low < dense.bounds()[0]
    assert high == 40, "no upper bound"
    ((*_, least, most, _),), ((*_, difference, low, high, _),) = (
        half_life_differences({str(life): curves for life, curves in seeds.items()})
        for seeds in (whole, asked)
    )
    assert low < 0 < least and difference > 0 and high > most
