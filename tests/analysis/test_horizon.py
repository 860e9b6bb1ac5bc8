"""The horizon of a data set: one run decides nothing, and what went further is read there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from holdfast.analysis.reading import METRICS
from holdfast.analysis.study import common_horizon, final_runs, read_study
from holdfast.results import RecallMatrix
from tests.analysis.synthetic import ADAPTER_BYTES, SEEDS, write_search, write_suite
from tests.analysis.synthetic import write_trajectory as write


@pytest.mark.parametrize(
    ("horizons", "common"),
    [
        ([100], 100),
        ([100, 100, 100, 120], 100),  # one went on
        ([3, 100, 100, 100], 100),  # one failed
        ([20, 20, 50, 50], 50),  # half have been continued
        ([20, 20, 20, 50, 50], 20),
        ([6, 4], 6),
        ([12, 13, 14, 15, 16], 14),  # all at work
        ([0, 0, 0, 5], 5),
        ([0, 0], 0),
    ],
)
def test_it_is_the_longest_that_half_of_the_runs_have_reached(
    horizons: list[int], common: int
) -> None:
    assert common_horizon(pd.Series(horizons)) == common
    reached = np.array([horizon for horizon in horizons if horizon])
    assert not len(reached) or (reached >= common).mean() >= 0.5 > (reached > common).mean()


def test_a_run_that_went_further_is_read_as_it_stood_there(tmp_path: Path) -> None:
    methods = ("vanilla", "replay", "olora")
    for name, seeds in (("short", SEEDS), ("long", SEEDS[1:])):
        write_suite(tmp_path / name, methods, seeds, tasks=8)
    for method in methods:
        write(tmp_path / f"long/cells/{method}", method, SEEDS[0], tasks=12)
    short, long = read_study(tmp_path / "short"), read_study(tmp_path / "long")
    told = (
        "symbol_qa: read after 8 tasks, as far as at least half of its runs have come; read there "
        "too, though further on: olora seed 41 (12 tasks), replay seed 41 (12 tasks), vanilla seed "
        "41 (12 tasks)"
    )
    assert long.missing[-1] == told and short.missing == ()
    assert not any("8 of" in line or "tasks learned" in line for line in long.missing)
    named = ["method", "seed"]
    columns = [*named, *METRICS, "horizon", "state_bytes"]
    tables = [
        final_runs(study.cells)[columns].sort_values(named, ignore_index=True)
        for study in (short, long)
    ]
    pd.testing.assert_frame_equal(*tables)
    grown = long.cells.set_index("path").loc[str(tmp_path / "long/cells/olora")]
    assert grown["state_bytes"] == 8 * ADAPTER_BYTES
    assert grown["box_emission"] == 1.0
    assert long.matrices[grown.name].horizon == 8


def test_the_first_three_are_named_and_the_others_counted(tmp_path: Path) -> None:
    for seed in range(5):
        write(tmp_path / f"far{seed}", "sd", seed, tasks=9)
    for seed in range(7):
        write(tmp_path / f"near{seed}", "vanilla", seed, tasks=4)
    (line,) = [line for line in read_study(tmp_path).missing if "read after 4" in line]
    assert line.endswith("sd seed 0 (9 tasks), sd seed 1 (9 tasks), sd seed 2 (9 tasks) and 2 more")


def test_a_run_that_failed_early_decides_for_no_other(tmp_path: Path) -> None:
    suite = write_suite(tmp_path, ["vanilla", "sd"], tasks=10, learned={("sd", 42): 1})
    study = read_study(suite)
    assert set(final_runs(study.cells)["horizon"]) == {10} and len(final_runs(study.cells)) == 5
    (line,) = study.missing
    assert line.startswith("symbol_qa sd seed 42: 1 of 10 tasks learned")


def test_a_run_that_was_not_evaluated_there_is_left_out_and_named(tmp_path: Path) -> None:
    suite = write_suite(tmp_path / "suite", ["vanilla"], tasks=6)
    write(tmp_path / "run", "sd", 41, tasks=9)
    rows = RecallMatrix.load(tmp_path / "run/matrix.csv")
    last = {on: recall for after, on, recall in rows.entries() if after == 9}
    RecallMatrix().with_row(9, last).save(tmp_path / "run/matrix.csv")
    study = read_study(suite, tmp_path / "run")
    assert set(final_runs(study.cells)["method"]) == {"vanilla"}
    assert study.matrices[str(tmp_path / "run")].horizon == 9
    (line,) = [line for line in study.missing if "not evaluated" in line]
    assert line == (
        "symbol_qa: left out, as they were not evaluated after 6 tasks like the others: sd seed 41 "
        "(9 tasks)"
    )


def test_searches_keep_the_horizons_that_their_candidates_reached(tmp_path: Path) -> None:
    scores = {"sd a.b=1": [0.1, 0.1, 0.1], "sd a.b=2": [0.1]}
    write_search(tmp_path / "search", scores, order_seed=None)
    write_suite(tmp_path / "suite", ["vanilla"], tasks=3)
    cells = read_study(tmp_path).cells
    reached = cells[cells["searched"]].groupby("candidate")["horizon"].unique()
    assert {name: list(values) for name, values in reached.items()} == {
        "sd a.b=1": [8],
        "sd a.b=2": [2],
    }
