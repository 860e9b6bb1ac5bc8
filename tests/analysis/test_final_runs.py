"""Which runs count as final, and what keeps them from being set beside each other."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from holdfast.analysis.study import final_runs, read_study
from holdfast.core.errors import HoldfastError
from tests.analysis.synthetic import change, write_search, write_suite, write_trajectory

PAIR = ("vanilla", "replay_merge")


def test_final_runs_are_those_of_the_stored_order_at_the_longest_horizon(tmp_path: Path) -> None:
    write_suite(tmp_path / "a", ["vanilla"], tasks=10)
    write_suite(tmp_path / "b", ["merge"], tasks=6)
    write_trajectory(tmp_path / "c", "sd", order_seed=7)
    study = read_study(tmp_path / "a", tmp_path / "b", tmp_path / "c")
    assert set(final_runs(study.cells)["method"]) == {"vanilla"}
    assert sum("6 of 10 tasks learned" in line for line in study.missing) == 3
    other = study.cells[study.cells["method"] == "sd"]
    assert len(final_runs(other)) == 1  # the only order there is


def test_the_stored_order_counts_however_far_another_has_come(tmp_path: Path) -> None:
    write_suite(tmp_path / "suite", PAIR, tasks=6)
    write_trajectory(tmp_path / "other", "vanilla", seed=41, tasks=9, order_seed=7)
    study = read_study(tmp_path)
    assert set(final_runs(study.cells)["horizon"]) == {6} and len(final_runs(study.cells)) == 6
    assert study.missing == ()


@pytest.mark.parametrize("order_seed", [None, 1234])
def test_a_search_of_methods_without_settings_has_no_final_runs(
    tmp_path: Path, order_seed: int | None
) -> None:
    scores = {"vanilla": [0.1], "sd": [0.3, 0.2], "merge": [0.5, 0.4]}
    search = write_search(tmp_path / "search", scores, horizons=(2, 4), order_seed=order_seed)
    study = read_study(search)
    assert final_runs(study.cells).empty and study.missing == ()
    suite = write_suite(tmp_path / "suite", ["sd"], tasks=4)
    assert set(final_runs(read_study(search, suite).cells)["study"]) == {str(suite)}


def test_a_copy_of_a_suite_is_not_passed_over(tmp_path: Path) -> None:
    suite = write_suite(tmp_path / "suite", PAIR, tasks=4)
    shutil.copytree(suite, tmp_path / "copy")
    assert len(read_study(suite, tmp_path / "copy").cells) == 12
    with pytest.raises(HoldfastError, match=r"is there twice, in .*copy.* and .*suite"):
        final_runs(read_study(tmp_path / "copy", suite).cells)


def test_runs_of_another_stream_are_named(tmp_path: Path) -> None:
    write_trajectory(tmp_path / "v", "vanilla", 41)
    write_trajectory(tmp_path / "w", "merge", 41)
    change(tmp_path / "w", stream={"name": "symbol_qa", "tasks": 10, "fingerprint": "other"})
    (line,) = [line for line in read_study(tmp_path).missing if "two streams" in line]
    assert str(tmp_path / "w") in line and line.startswith("symbol_qa: ")
