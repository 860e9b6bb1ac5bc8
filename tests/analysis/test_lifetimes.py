"""The uncertainty of half-lives: the definition is taken anew in every draw."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from holdfast.analysis import analyse, read_study
from holdfast.analysis.uncertainty import Lifetime, draws, lives_apart, recall_by_age
from holdfast.results import RecallMatrix, half_life, retention_by_age
from tests.analysis.synthetic import write_suite, write_trajectory


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


def test_it_is_the_half_life_of_the_table(tmp_path: Path) -> None:
    study = read_study(write_suite(tmp_path / "suite", tasks=14))
    tables = analyse(study).tables
    halves = tables["half_lives"].set_index("method")
    means = tables["means"].query("metric == 'half_life'").set_index("method")
    assert halves["half_life"].equals(means.loc[halves.index, "value"])
    assert halves["half_life"].isna().any() and (halves["seeds"] == 3).all()
    known = halves[halves["high"].notna() & halves["half_life"].notna()]
    assert len(known) > 5
    assert ((known["low"] <= known["half_life"]) & (known["half_life"] <= known["high"])).all()
    for path, matrix in list(study.matrices.items())[:9]:
        life = Lifetime([recall_by_age(matrix)])
        assert life.known(life.value) == pytest.approx(half_life(matrix) or np.nan, nan_ok=True), (
            path
        )
        assert np.nanmean(recall_by_age(matrix), axis=0) == pytest.approx(retention_by_age(matrix))


def test_differences_are_those_of_the_half_lives(tmp_path: Path) -> None:
    tables = analyse(read_study(write_suite(tmp_path / "suite", tasks=14))).tables
    table = tables["differences"].query("metric == 'half_life'")
    halves = tables["half_lives"].set_index("method")["half_life"]
    beyond = set(halves.index[halves.isna()])
    assert len(beyond) == 2
    assert len(table) == 16 * 15 / 2 - 1  # of two that do not halve nothing is known
    for row in table.to_dict("records"):
        ages = [
            halves[row[name]] if row[name] not in beyond else 14 for name in ("method", "other")
        ]
        assert row["difference"] == ages[0] - ages[1] >= 0
        assert row["low"] <= row["difference"] <= row["high"]
        assert row["noise"] == (row["low"] <= 0 <= row["high"])
    assert table["noise"].any() and not table["noise"].all()


def test_the_same_tasks_are_drawn_for_both(tmp_path: Path) -> None:
    """Half-lives that spread with the tasks, of which one is always the other and two more."""
    random = np.random.default_rng(3)
    lives = random.integers(2, 12, size=30)
    for seed in (1, 2, 3):
        for method, more in (("vanilla", 0), ("merge", 2)):
            age = np.subtract.outer(np.arange(30), np.arange(30))
            correct = np.where((age >= 0) & (age < lives + more), 20, 0)
            write_trajectory(tmp_path / f"{method}{seed}", method, seed, 30, correct=correct)
    tables = analyse(read_study(tmp_path)).tables
    own = tables["half_lives"].set_index("method")
    assert own.at["merge", "high"] - own.at["merge", "low"] >= 3
    assert own.at["merge", "low"] < own.at["vanilla", "high"]  # each on its own: may be noise
    (apart,) = tables["differences"].query("metric == 'half_life'").to_dict("records")
    assert (apart["method"], apart["low"], apart["high"]) == ("merge", 1, 2)
    assert not apart["noise"]


def test_a_curve_that_may_not_halve_has_no_upper_bound(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    seeds = {seed: made(random, 20, 20.0, 0.7) for seed in (1, 2)}
    life = Lifetime(list(seeds.values()))
    low, high = life.bounds()
    assert low < 20 == high and np.isnan(life.known(high))
    assert np.isnan(Lifetime([seeds[1]]).bounds()).all()
    apart = list(lives_apart({"a": seeds, "b": {1: seeds[1], 3: seeds[2]}}))
    assert apart == []  # one seed in common


def test_a_difference_is_of_the_seeds_that_both_have() -> None:
    random = np.random.default_rng(3)
    seeds = {seed: made(random, 20, 5.0, 0.3) for seed in (1, 2)}
    (apart,) = lives_apart({"a": {**seeds, 3: made(random, 20, 40.0, 0.3)}, "b": seeds})
    assert apart == ("a", "b", 0, 0, 0, 2)


@pytest.mark.parametrize(("seed_spread", "least", "most"), [(0.05, 0.88, 1.0), (0.8, 0.3, 0.9)])
def test_it_covers_the_truth_where_seeds_spread_less_than_tasks(
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
    known, little = (Lifetime(list(one[12.0].values())) for one in (whole, asked))
    assert known.bounds()[1] - known.bounds()[0] <= 3
    low, high = little.bounds()
    assert low <= little.value < 40 and low < known.bounds()[0]
    assert high == 40, "no upper bound"
    ((*_, least, most, _),) = lives_apart({str(life): one for life, one in whole.items()})
    ((*_, difference, low, high, _),) = lives_apart({str(life): one for life, one in asked.items()})
    assert low < 0 < least and difference > 0 and high > most


def test_an_empty_matrix_has_no_ages() -> None:
    assert recall_by_age(RecallMatrix()).shape == (0, 0)
