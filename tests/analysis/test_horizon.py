"""Which runs are final, and at which horizon: one run decides nothing, others are read there."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from holdfast.analysis.reading import METRICS
from holdfast.analysis.study import common_horizon, final_runs, read_study
from holdfast.core.errors import HoldfastError
from holdfast.results import RecallMatrix
from holdfast.results.record import write_commit
from tests.analysis.synthetic import ADAPTER_BYTES, SEEDS, change, write_search, write_suite
from tests.analysis.synthetic import write_trajectory as write

PAIR = ("vanilla", "replay_merge")


def test_final_runs_are_those_of_the_stored_order_at_the_longest_horizon(tmp_path: Path) -> None:
    write_suite(tmp_path / "a", ["vanilla"], tasks=10)
    write_suite(tmp_path / "b", ["merge"], tasks=6)
    write(tmp_path / "c", "sd", tasks=12, order_seed=7)  # however far it has come
    study = read_study(tmp_path / "a", tmp_path / "b", tmp_path / "c")
    assert set(final_runs(study.cells)["method"]) == {"vanilla"}
    assert sum("6 of 10 tasks learned" in line for line in study.missing) == 3
    other = study.cells[study.cells["method"] == "sd"]
    assert len(final_runs(other)) == 1  # the only order there is


def test_the_stored_order_counts_however_far_another_has_come(tmp_path: Path) -> None:
    write_suite(tmp_path / "suite", PAIR, tasks=6)
    write(tmp_path / "other", "vanilla", seed=41, tasks=9, order_seed=7)
    study = read_study(tmp_path)
    assert set(final_runs(study.cells)["horizon"]) == {6} and len(final_runs(study.cells)) == 6
    (line,) = study.missing
    assert "1 trajectory with stream.order_seed=7: left out" in line


def test_runs_in_several_orders_of_tasks_are_named(tmp_path: Path) -> None:
    """Without the stored order, all orders are in the tables; another search order is not."""
    write(tmp_path / "a", "vanilla", order_seed=1)
    write(tmp_path / "b", "merge", order_seed=2)
    (line,) = read_study(tmp_path).missing
    assert "several orders (stream.order_seed=1, stream.order_seed=2)" in line
    write(tmp_path / "b", "merge", order_seed=1)
    write_search(tmp_path / "search", {"sd a.b=1": [0.1]}, (2,), order_seed=3)
    assert read_study(tmp_path).missing == ()


@pytest.mark.parametrize("order_seed", [None, 1234])
def test_a_search_of_methods_without_settings_has_no_final_runs(
    tmp_path: Path, order_seed: int | None
) -> None:
    scores = {"vanilla": [0.1], "sd": [0.3, 0.2], "merge": [0.5, 0.4]}
    search = write_search(tmp_path / "search", scores, horizons=(2, 4), order_seed=order_seed)
    study = read_study(search)
    assert final_runs(study.cells).empty and study.missing == ()
    reached = study.cells.groupby("candidate")["horizon"].unique()
    assert [list(reached[name]) for name in scores] == [[2], [4], [4]]
    suite = write_suite(tmp_path / "suite", ["sd"], tasks=3)  # what a search reached stays
    study = read_study(search, suite)
    assert set(final_runs(study.cells)["study"]) == {str(suite)}
    assert study.cells[study.cells["searched"]]["horizon"].max() == 4


def test_a_copy_of_a_suite_is_not_passed_over(tmp_path: Path) -> None:
    suite = write_suite(tmp_path / "suite", PAIR, tasks=4)
    shutil.copytree(suite, tmp_path / "copy")
    assert len(read_study(suite, tmp_path / "copy").cells) == 12
    with pytest.raises(HoldfastError, match=r"is there twice, in .*copy.* and .*suite"):
        final_runs(read_study(tmp_path / "copy", suite).cells)


def test_runs_of_another_stream_are_named(tmp_path: Path) -> None:
    for name, method in (("v", "vanilla"), ("w", "merge")):
        write(tmp_path / name, method)
    change(tmp_path / "w", stream={"name": "symbol_qa", "tasks": 10, "fingerprint": "other"})
    (line,) = [line for line in read_study(tmp_path).missing if "two streams" in line]
    assert str(tmp_path / "w") in line and line.startswith("symbol_qa: ")


@pytest.mark.parametrize(("tasks", "alike"), [("abc", True), ("xyz", False), ("", True)])
def test_streams_of_other_lengths_are_compared_by_their_tasks(
    tmp_path: Path, tasks: str, alike: bool
) -> None:
    """A longer run may have begun as a shorter one, or have learned something else."""
    for name, method, learned, length in (("v", "vanilla", "ab", 2), ("w", "merge", tasks, 3)):
        write(tmp_path / name, method, 41, length, learned=len(learned))
        matrix = (tmp_path / name / "matrix.csv").read_text()
        write_commit(tmp_path / name, {"tasks": [*learned], "matrix": matrix})
        stream = {"name": "symbol_qa", "tasks": length, "fingerprint": learned}
        change(tmp_path / name, stream=stream)
    lines = [line for line in read_study(tmp_path).missing if "two streams" in line]
    assert bool(lines) != alike


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


@pytest.mark.parametrize(
    ("methods", "named"),
    [
        (("vanilla", "replay", "olora"), ("olora", "replay", "vanilla")),
        (("merge", "vanilla", "replay", "olora"), ("merge", "olora", "replay")),
    ],
)
def test_a_run_that_went_further_is_read_as_it_stood_there(
    tmp_path: Path, methods: tuple[str, ...], named: tuple[str, ...]
) -> None:
    """Three runs are named, and the others counted."""
    for name, seeds in (("short", SEEDS), ("long", SEEDS[1:])):
        write_suite(tmp_path / name, methods, seeds, tasks=8)
    for method in methods:
        write(tmp_path / f"long/cells/{method}", method, SEEDS[0], tasks=12)
    short, long = read_study(tmp_path / "short"), read_study(tmp_path / "long")
    note = (
        "symbol_qa: read after 8 tasks, as far as at least half of its runs have come; read there "
        "too, though further on: " + ", ".join(f"{method} seed 41 (12 tasks)" for method in named)
    ) + (" and 1 more" if len(methods) > 3 else "")
    assert long.missing == (note,) and short.missing == ()
    keys = ["method", "seed"]
    columns = [*keys, *METRICS, "horizon", "state_bytes"]
    tables = [
        final_runs(study.cells)[columns].sort_values(keys, ignore_index=True)
        for study in (short, long)
    ]
    pd.testing.assert_frame_equal(*tables)
    grown = long.cells.set_index("path").loc[str(tmp_path / "long/cells/olora")]
    assert grown["state_bytes"] == 8 * ADAPTER_BYTES
    assert grown["box_emission"] == 1.0
    assert long.matrices[grown.name].horizon == 8


@pytest.mark.parametrize("asked_its_own", [False, True])
def test_a_run_that_was_not_evaluated_there_is_left_out_and_named(
    tmp_path: Path, asked_its_own: bool
) -> None:
    """asked_its_own: each task was asked when just learned, as with ``evaluation.rows=9``."""
    suite = write_suite(tmp_path / "suite", ["vanilla"], tasks=6)
    write(tmp_path / "run", "sd", 41, tasks=9)
    kept = RecallMatrix()
    for after, on, recall in RecallMatrix.load(tmp_path / "run/matrix.csv").entries():
        if after == 9 or (asked_its_own and after == on):
            kept = kept.with_entry(after, on, recall)
    kept.save(tmp_path / "run/matrix.csv")
    study = read_study(suite, tmp_path / "run")
    assert set(final_runs(study.cells)["method"]) == {"vanilla"}
    assert study.matrices[str(tmp_path / "run")].horizon == 9
    (line,) = [line for line in study.missing if "not evaluated" in line]
    assert line == (
        "symbol_qa: left out, as they were not evaluated after 6 tasks like the others: sd seed 41 "
        "(9 tasks)"
    )
