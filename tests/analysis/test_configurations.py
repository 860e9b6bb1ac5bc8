"""Tables over seeds against numbers worked out by hand: metrics, spread, curves, half-lives."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from holdfast.analysis.configurations import bands, configurations, curves, half_lives, seed_spread
from holdfast.analysis.study import Study, read_study
from holdfast.core.errors import HoldfastError
from holdfast.results import half_life
from tests.analysis.synthetic import counts, write_suite, write_trajectory

METRICS = ("final", "diag", "forget", "w10", "w50")


def test_mean_and_deviation_over_seeds(tmp_path: Path) -> None:
    suite = write_suite(tmp_path / "suite", ["replay_merge"], tasks=12, items=50)
    (row,) = configurations(read_study(suite).cells).to_dict("records")
    # From the counts themselves, without a matrix file or the library's metrics.
    shares = [counts("replay_merge", seed, 12, 50) / 50 for seed in (41, 42, 43)]
    finals = [share[-1].mean() for share in shares]
    mean = sum(finals) / 3
    deviation = math.sqrt(sum((final - mean) ** 2 for final in finals) / 2)
    assert row["final"] == pytest.approx(mean, abs=1e-12)
    assert row["final_sd"] == pytest.approx(deviation, abs=1e-12) and deviation > 0
    windows = [share[-1, -10:].mean() for share in shares]
    assert row["w10"] == pytest.approx(sum(windows) / 3, abs=1e-12)
    drops = [(share.max(axis=0) - share[-1])[:-1].mean() for share in shares]
    assert row["forget"] == pytest.approx(sum(drops) / 3, abs=1e-12)
    assert (row["seeds"], row["horizon"], row["diag"], row["diag_sd"]) == (3, 12, 1.0, 0.0)
    assert math.isnan(row["w50"]) and math.isnan(row["w50_sd"])


def test_what_one_seed_lacks_is_not_averaged_over_the_others(tmp_path: Path) -> None:
    cells = read_study(write_suite(tmp_path / "suite", ["merge"])).cells
    (row,) = configurations(cells[cells["seed"] == 41]).to_dict("records")
    assert row["seeds"] == 1 and row["final"] > 0
    assert all(math.isnan(row[f"{metric}_sd"]) for metric in METRICS)
    with pytest.raises(HoldfastError, match="merge with seed 41 is there twice"):
        configurations(pd.concat([cells, cells.iloc[:1]], ignore_index=True))
    empty = configurations(cells.iloc[:0])
    assert empty.empty and {"dataset", "method", "final", "final_sd"} <= set(empty.columns)
    cells.loc[0, ["w10", "half_life"]] = math.nan
    (row,) = configurations(cells).to_dict("records")
    assert math.isnan(row["w10"]) and math.isnan(row["w10_sd"]) and math.isnan(row["half_life"])
    assert not math.isnan(row["final"])


FINALS = {
    "replay": [0.1, 0.2, 0.3],
    "si_replay_merge": [0.4, 0.44, 0.48],
    "sd_merge": [0.1, 0.1, 0.1],
    "vanilla": [0.01, 0.02, 0.03],
    "olora": [0.05],
}


def cells_of(finals: dict[str, list[float]]) -> pd.DataFrame:
    """Cells by candidate, with seeds 41, 42, ..."""
    rows = [
        {
            "study": "search",
            "dataset": "symbol_qa",
            "method": candidate.split()[0],
            "candidate": candidate,
            "seed": seed,
            "order_seed": pd.NA,
            "horizon": 100,
            "final": final,
            "path": f"{candidate} {seed}",
        }
        for candidate, values in finals.items()
        for seed, final in enumerate(values, start=41)
    ]
    return pd.DataFrame(rows)


def test_the_spread_of_every_method_and_of_the_groups() -> None:
    cells = cells_of(FINALS)
    spread = seed_spread(cells)
    assert list(spread["method"]) == ["replay", "si_replay_merge", "vanilla", "sd_merge"]
    assert list(spread["data_anchor"]) == [True, True, False, False]
    np.testing.assert_allclose(spread["final_sd"], [0.1, 0.04, 0.01, 0.0], atol=1e-15)
    np.testing.assert_allclose(spread["final"], [0.2, 0.44, 0.02, 0.1])


def study_of(tmp_path: Path, *seeds: list[int]) -> Study:
    """By seed, how many of 100 are right at each age."""
    for seed, retention in enumerate(seeds):
        tasks = len(retention)
        age = np.subtract.outer(np.arange(tasks), np.arange(tasks)).clip(min=0)
        correct = np.array(retention)[age]
        write_trajectory(tmp_path / str(seed), "merge", seed, tasks, 100, correct=correct)
    return read_study(tmp_path)


def test_curves_are_means_of_diagonals_and_bands_go_from_lowest_to_highest(tmp_path: Path) -> None:
    study = study_of(tmp_path, [100, 80, 40], [90, 60, 20], [80, 70, 60])
    table = curves(study)
    assert list(table["age"]) == [0, 1, 2] * 3 and list(table["seed"].unique()) == [0, 1, 2]
    np.testing.assert_allclose(table["retention"], [1, 0.8, 0.4, 0.9, 0.6, 0.2, 0.8, 0.7, 0.6])
    assert set(table["candidate"]) == set(table["method"]) == {"merge"}
    band = bands(table)
    assert list(band["age"]) == [0, 1, 2]
    np.testing.assert_allclose(band["mean"], [0.9, 0.7, 0.4])
    np.testing.assert_allclose(band["lowest"], [0.8, 0.6, 0.2])
    np.testing.assert_allclose(band["highest"], [1.0, 0.8, 0.6])
    assert list(band["seeds"]) == [3, 3, 3]
    table.loc[1, "retention"] = math.nan  # an age that one seed did not observe
    assert list(bands(table)["mean"].isna()) == list(bands(table)["lowest"].isna())
    assert list(bands(table)["mean"].isna()) == [False, True, False]
    nothing = curves(type(study)(study.cells.iloc[:0], {}, {}, ()))
    assert nothing.empty and bands(nothing).empty and half_lives(bands(nothing)).empty


def test_the_half_life_is_of_the_mean_curve(tmp_path: Path) -> None:
    # The seeds halve after 1 and after 3 tasks, their mean after 2.
    study = study_of(tmp_path, [100, 40, 20, 10], [100, 90, 70, 30])
    assert sorted(half_life(matrix) for matrix in study.matrices.values()) == [1, 3]
    (row,) = half_lives(bands(curves(study))).to_dict("records")
    assert row == {
        "dataset": "symbol_qa",
        "method": "merge",
        "half_life": 2.0,
        "retention": pytest.approx(0.45),
        "ages": 4,
    }
