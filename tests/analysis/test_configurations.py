"""Tables over seeds against numbers worked out by hand; two settings of a method are two rows."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from holdfast.analysis.configurations import bands, configurations, curves, half_lives, seed_spread
from holdfast.analysis.study import Study, read_study
from holdfast.analysis.tables import analyse
from holdfast.core.errors import HoldfastError
from holdfast.report.figures import study_figures
from holdfast.report.names import looks, method_name
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


SLOW, FAST = "merge optim.lr=0.001", "merge optim.lr=0.002"


@pytest.fixture
def swept(tmp_path: Path) -> Path:
    """vanilla and merge; merge at two learning rates, three seeds, in loose directories."""
    for seed in (1, 2, 3):
        write_trajectory(tmp_path / f"v{seed}", "vanilla", seed, tasks=4)
        for rate in (1e-3, 2e-3):
            settings = {"optim.lr": rate}
            write_trajectory(
                tmp_path / f"m{rate}-{seed}", "merge", seed, tasks=4, settings=settings
            )
    return tmp_path


def test_tables_and_figures_are_keyed_by_the_settings_that_differ(swept: Path) -> None:
    study = read_study(swept)
    assert study.missing == ()
    analysis = analyse(study)
    table = analysis.tables["configurations"].set_index("method")
    assert set(table.index) == {"vanilla", SLOW, FAST}
    assert (table["seeds"] == 3).all() and table["final_sd"].notna().all()
    assert set(analysis.tables["survival"]["method"]) == {"vanilla", SLOW, FAST}
    assert {"survival", "matrices"} <= set(study_figures(study, analysis).figures)
    with pytest.raises(HoldfastError, match="no table item: did you mean items"):
        analysis.tables["item"]


def test_one_setting_of_a_sweep_is_a_study_as_any_other(swept: Path) -> None:
    study = read_study(swept, where={"optim.lr": 1e-3})
    assert study.missing == ("3 trajectories without optim.lr=0.001: left out",)
    assert set(study.cells["method"]) == {"vanilla", "merge"}
    assert len(analyse(study).tables["configurations"]) == 2


def test_a_setting_that_nobody_has_is_refused(swept: Path) -> None:
    for name, words in (
        ("optim.lr", "optim.lr=5: no run has that, but optim.lr=0.001, optim.lr=0.002"),
        ("optim.rl", "optim.rl: no run has that setting; did you mean optim.lr?"),
    ):
        with pytest.raises(HoldfastError, match=words):
            read_study(swept, where={name: 5})


def test_a_seed_that_one_setting_lacks_is_named(tmp_path: Path) -> None:
    for seed, rate in ((1, 0.1), (2, 0.1), (3, 0.2)):
        settings = {"optim.lr": rate}
        write_trajectory(tmp_path / f"v{seed}", "vanilla", seed, settings=settings)
    assert read_study(tmp_path).missing == (
        "symbol_qa vanilla optim.lr=0.1: no trajectory with seed 3, which others have",
        "symbol_qa vanilla optim.lr=0.2: no trajectory with seed 1, 2, which others have",
    )


def test_settings_are_in_the_name_and_the_first_keeps_the_methods_look() -> None:
    assert method_name(SLOW) == "M, optim.lr=0.001"
    drawn = looks(["vanilla", SLOW, FAST])
    assert drawn[SLOW] == looks(["merge"])["merge"]
    assert len(set(drawn.values())) == 3


def test_settings_are_told_apart_within_a_data_set(tmp_path: Path) -> None:
    for name, rate in (("symbol_qa", 0.1), ("others", 0.2)):
        settings = {"optim.lr": rate}
        write_trajectory(tmp_path / name, "merge", 1, 3, dataset=name, settings=settings)
    assert set(read_study(tmp_path).cells["method"]) == {"merge"}


def test_a_setting_of_a_plug_in_is_called_as_a_user_writes_it(tmp_path: Path) -> None:
    for strength in (0.1, 1.0):
        settings = {"plugins.tether": {"strength": strength}}
        write_trajectory(tmp_path / f"{strength}", "tether_merge", 1, 3, settings=settings)
    both = {f"tether_merge tether.strength={strength}" for strength in (0.1, 1.0)}
    assert set(read_study(tmp_path).cells["method"]) == both
    assert len(read_study(tmp_path, where={"tether.strength": 1.0}).cells) == 1


@pytest.mark.parametrize(
    ("retention", "expected"),
    [
        ([100, 50, 49], 2),  # half is not below half
        ([60, 40, 29], 2),  # of where it began, not of 1
        ([100, 90, 80], math.nan),  # it does not fall so far
        ([100, math.nan, 10], math.nan),  # nobody knows whether it did before
        ([0, 0, 0], math.nan),
    ],
)
def test_when_half_is_lost(retention: list[float], expected: float) -> None:
    share = [value / 100 for value in retention]
    table = pd.DataFrame({"dataset": "d", "method": "m", "age": range(3), "mean": share})
    (life,) = half_lives(table)["half_life"]
    assert life == expected or (math.isnan(life) and math.isnan(expected))
