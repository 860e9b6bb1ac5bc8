"""The per-configuration table against numbers worked out by hand."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import pytest

from holdfast.analysis.configurations import configurations
from holdfast.analysis.study import read_study
from holdfast.core.errors import HoldfastError
from tests.analysis.synthetic import counts, write_suite

METRICS = ("final", "diag", "forget", "w10", "w50")


def table(tmp_path: Path, *methods: str, **arguments) -> pd.DataFrame:
    study = read_study(write_suite(tmp_path / "suite", methods, **arguments))
    return configurations(study.cells).set_index("method")


def test_mean_and_deviation_over_seeds(tmp_path: Path) -> None:
    row = table(tmp_path, "replay_merge", tasks=12, items=50).loc["replay_merge"]
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


def test_one_seed_has_no_deviation(tmp_path: Path) -> None:
    row = table(tmp_path, "merge", seeds=[41]).loc["merge"]
    assert row["seeds"] == 1 and row["final"] > 0
    assert all(math.isnan(row[f"{metric}_sd"]) for metric in METRICS)


def test_what_one_seed_lacks_is_not_averaged_over_the_others(tmp_path: Path) -> None:
    cells = read_study(write_suite(tmp_path / "suite", ["merge"])).cells
    cells.loc[0, ["w10", "half_life"]] = math.nan
    (row,) = configurations(cells).to_dict("records")
    assert math.isnan(row["w10"]) and math.isnan(row["w10_sd"]) and math.isnan(row["half_life"])
    assert not math.isnan(row["final"])


def test_unfinished_cells_do_not_count(tmp_path: Path) -> None:
    whole = table(tmp_path / "whole", "merge", "sd", seeds=(41, 43))
    part = table(tmp_path / "part", "merge", "sd", learned={("merge", 42): 3, ("sd", 42): 9})
    pd.testing.assert_frame_equal(whole, part)


def test_twice_the_same_is_refused_and_nothing_is_an_empty_table(tmp_path: Path) -> None:
    cells = read_study(write_suite(tmp_path / "suite", ["merge"])).cells
    with pytest.raises(HoldfastError, match="merge with seed 41 is there twice"):
        configurations(pd.concat([cells, cells.iloc[:1]], ignore_index=True))
    empty = configurations(cells.iloc[:0])
    assert empty.empty and {"dataset", "method", "final", "final_sd"} <= set(empty.columns)
