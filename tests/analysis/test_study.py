"""Reading studies: every number follows from the matrix, and what is not there is named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from holdfast.analysis.study import final_runs, read_study
from holdfast.results import METRICS, RecallMatrix, box_emission, final, summarise
from tests.analysis.synthetic import SEEDS, change, key, write_search, write_suite, write_trajectory
from tests.refused import line_of

PAIR = ("vanilla", "replay_merge")


def cell_of(suite: Path, method: str, seed: int) -> Path:
    return suite / "cells" / key(method, seed, "symbol_qa")


def test_a_suite_is_one_row_a_trajectory_with_the_metrics_of_its_matrix(tmp_path: Path) -> None:
    suite = write_suite(tmp_path / "suite", PAIR, tasks=12)
    study = read_study(suite)
    assert study.missing == () and not study.traces
    assert len(study.cells) == len(PAIR) * len(SEEDS)
    for row in study.cells.to_dict("records"):
        path = cell_of(suite, row["method"], row["seed"])
        matrix = RecallMatrix.load(path / "matrix.csv")
        recorded = {name: summarise(matrix)[name] for name in METRICS}
        assert {name: None if pd.isna(row[name]) else row[name] for name in METRICS} == recorded
        assert study.matrices[row["path"]] == matrix and row["path"] == str(path)
        assert (row["horizon"], row["candidate"], row["study"]) == (12, row["method"], str(suite))
        assert (row["dataset"], row["box_emission"]) == ("symbol_qa", 1.0)
        assert pd.isna(row["order_seed"]) and row["state_bytes"] == 4_000
    assert study.cells["w50"].isna().all()  # there are no 50 tasks
    assert study.cells["seed"].dtype == "int64" and study.cells["order_seed"].dtype == "Int64"


def test_metrics_follow_from_the_matrix(tmp_path: Path) -> None:
    write_trajectory(tmp_path / "run", emission=0.75)
    (tmp_path / "run/metrics.json").write_text(json.dumps({"final": 0.999, "box_emission": 0.5}))
    study = read_study(tmp_path / "run")
    assert study.missing == ()
    row, matrix = study.cells.iloc[0], study.matrices[str(tmp_path / "run")]
    assert row["final"] == final(matrix) != 0.999
    assert row["box_emission"] == box_emission(matrix)["final"] > 0.5


def test_what_is_unfinished_is_there_and_named(tmp_path: Path) -> None:
    suite = write_suite(tmp_path / "suite", PAIR, learned={("vanilla", 42): 3}, tables=False)
    study = read_study(suite)
    assert list(study.cells.query("method == 'vanilla'")["horizon"]) == [10, 3, 10]
    table, short = study.missing
    assert "no cells.csv" in table
    assert "symbol_qa vanilla seed 42: 3 of 10 tasks learned" in short
    assert len(final_runs(study.cells)) == 5


def test_a_table_tells_what_was_planned_and_why_it_failed(tmp_path: Path) -> None:
    suite = write_suite(
        tmp_path / "suite", PAIR, learned={("vanilla", 41): 4}, absent=[("replay_merge", 43)]
    )
    absent, short = read_study(suite).missing
    assert "symbol_qa replay_merge seed 43: not in" in absent and "out of memory" in absent
    assert "vanilla seed 41: 4 of 10" in short and "out of memory" in short


def test_a_trajectory_that_has_learned_nothing_yet(tmp_path: Path) -> None:
    write_trajectory(tmp_path / "run")
    for name in ("matrix.csv", "log.jsonl"):
        (tmp_path / "run" / name).unlink()
    study = read_study(tmp_path / "run")
    assert study.cells.iloc[0]["horizon"] == 0
    assert pd.isna(study.cells.iloc[0]["final"])
    assert "0 of 10 tasks learned" in study.missing[0]


@pytest.mark.parametrize("name", ["config.json", "matrix.csv"])
@pytest.mark.parametrize("damage", ["[1, 2", "{}\n"])
def test_a_damaged_file_is_named_and_the_rest_goes_on(
    tmp_path: Path, name: str, damage: str
) -> None:
    suite = write_suite(tmp_path / "suite", ["vanilla"])
    (cell_of(suite, "vanilla", 42) / name).write_text(damage)
    study = read_study(suite)
    assert any(name in line for line in study.missing)
    assert sorted(study.cells["seed"]) == [41, 43]


@pytest.mark.parametrize("log", ["{}\n", "[1, 2"])  # the second is being written
def test_a_log_without_a_task_says_nothing(tmp_path: Path, log: str) -> None:
    suite = write_suite(tmp_path / "suite", ["vanilla"])
    (cell_of(suite, "vanilla", 42) / "log.jsonl").write_text(log)
    study = read_study(suite)
    assert study.missing == () and study.cells["state_bytes"].isna().sum() == 1


def test_a_log_may_be_ahead_of_the_matrix(tmp_path: Path) -> None:
    write_trajectory(tmp_path / "run", "olora", tasks=5)
    with (tmp_path / "run/log.jsonl").open("a") as file:
        file.write('{"event": "task", "task": 6, "state_bytes": 1}\n')
    assert read_study(tmp_path / "run").cells["state_bytes"].item() == 5 * 4_000


@pytest.mark.parametrize("name", ["study.json", "cells.csv"])
@pytest.mark.parametrize("damage", ["", "[]", "a,b\n1,2\n"])
def test_a_damaged_study_still_has_its_cells(tmp_path: Path, name: str, damage: str) -> None:
    suite = write_suite(tmp_path / "suite", PAIR)
    (suite / name).write_text(damage)
    study = read_study(suite)
    assert len(study.cells) == 6
    assert any(name in line for line in study.missing)


def test_folders_and_several_directories(tmp_path: Path) -> None:
    write_trajectory(tmp_path / "demo/vanilla", "vanilla")
    write_trajectory(tmp_path / "demo/merge", "merge")
    suite = write_suite(tmp_path / "llm", PAIR, dataset="streams/llm_qa")
    study = read_study(tmp_path / "demo", suite)
    assert study.cells["dataset"].value_counts().to_dict() == {"llm_qa": 6, "symbol_qa": 2}
    # The folder of folders has them too, and nothing is there twice.
    assert sorted(read_study(tmp_path, suite, suite / "cells").cells["path"]) == sorted(
        study.cells["path"]
    )


def test_a_store_elsewhere(tmp_path: Path) -> None:
    suite = write_suite(tmp_path / "suite", PAIR, store=tmp_path / "store")
    write_trajectory(tmp_path / "store/other", "sd")
    (line,) = read_study(suite, tmp_path / "store" / "other").missing[:1]
    assert "6 trajectories of the suite are not there" in line
    cells = read_study(suite, tmp_path / "store").cells
    assert cells["study"].value_counts().to_dict() == {str(suite): 6, str(tmp_path / "store"): 1}


def test_a_suite_need_not_learn_the_whole_stream(tmp_path: Path) -> None:
    short = {("vanilla", seed): 4 for seed in SEEDS}
    suite = write_suite(tmp_path / "suite", ["vanilla"], learned=short)
    table = (suite / "cells.csv").read_text()
    (suite / "cells.csv").write_text(table.replace(",10,", ",4,"))
    assert read_study(suite, suite / "cells").missing == ()


CANDIDATES = {
    "vanilla": [0.3],
    "merge": [0.4, 0.2],
    "sd sd.strength=1": [0.5, 0.4, 0.3],
    "sd sd.strength=3": [0.6, 0.5, 0.4],
}


def test_a_search_has_candidates_an_order_and_a_trace(tmp_path: Path) -> None:
    study = read_study(write_search(tmp_path / "search", CANDIDATES))
    assert study.missing == ()
    assert set(study.cells["order_seed"]) == {1234}
    horizons = study.cells.groupby("candidate")["horizon"].max()
    assert horizons.to_dict() == dict(zip(CANDIDATES, (2, 4, 8, 8), strict=True))
    trace = study.traces["symbol_qa"]
    assert len(trace) == 4 + 3 + 2
    best = trace[trace["horizon"] == 8].sort_values("rank")["candidate"]
    assert list(best) == ["sd sd.strength=3", "sd sd.strength=1"]
    assert final_runs(study.cells).empty  # they are no final runs


def test_a_search_that_has_not_finished_says_how_far_it_came(tmp_path: Path) -> None:
    failing = {**CANDIDATES, "si": [float("nan")]}
    search = write_search(tmp_path / "search", failing)
    lines = (search / "trace.csv").read_text().splitlines(keepends=True)
    (search / "trace.csv").write_text("".join(line for line in lines if not line.startswith("8,")))
    failed, far = read_study(search).missing
    assert "symbol_qa si: failed at horizon 2 (RuntimeError: diverged)" in failed
    assert "has come to horizon 4; 2 candidates go on" in far
    (search / "trace.csv").unlink()
    (line,) = read_study(search).missing
    assert "no trace.csv" in line


@pytest.mark.parametrize("damage", ["", '{"cells": [1]}'])
def test_a_search_whose_question_is_damaged_still_has_its_trace(
    tmp_path: Path, damage: str
) -> None:
    search = write_search(tmp_path / "symbol_qa", CANDIDATES)
    (search / "study.json").write_text(damage)
    study = read_study(search)
    assert study.cells.empty and len(study.traces["symbol_qa"]) == 9
    assert "study.json" in study.missing[0]


@pytest.mark.parametrize("damage", ["", "no,table\n", "half"])
def test_a_damaged_trace_is_named_and_the_cells_go_on(tmp_path: Path, damage: str) -> None:
    search = write_search(tmp_path / "search", CANDIDATES)
    text = (search / "trace.csv").read_text()
    (search / "trace.csv").write_text(text + "8,\n" if damage == "half" else damage)
    study = read_study(search)
    assert len(study.cells) == 12 and not study.traces
    assert "trace.csv" in study.missing[0]


def test_the_larger_of_two_searches_has_the_trace(tmp_path: Path) -> None:
    control = {"replay sampling.temperature=0.7": [0.1, 0.1, 0.1]}
    write_search(tmp_path / "control", control)
    write_search(tmp_path / "search", CANDIDATES)
    study = read_study(tmp_path)
    assert len(study.cells) == 12 + 3
    assert set(study.traces["symbol_qa"]["candidate"]) == set(CANDIDATES)
    assert "the one with 1 candidates is left out" in study.missing[0]


def test_the_trajectories_of_a_search_may_be_gone(tmp_path: Path) -> None:
    study = read_study(write_search(tmp_path / "symbols", CANDIDATES, cells=False))
    assert study.cells.empty and list(study.traces) == ["symbols"]
    assert "12 of 12 trajectories" in study.missing[0]


def test_a_study_says_where_its_store_is(tmp_path: Path) -> None:
    suite = write_suite(tmp_path / "suite", PAIR, store=tmp_path / "store")
    write_trajectory(tmp_path / "store/other", "sd")  # of another study
    (suite / "store.json").write_text('{"store": "../store"}')
    study = read_study(suite)
    assert study.missing == ()
    assert study.cells["study"].value_counts().to_dict() == {str(suite): 6}


def test_a_search_in_the_store_of_a_suite(tmp_path: Path) -> None:
    suite = write_suite(tmp_path / "suite", PAIR)
    search = write_search(tmp_path / "search", CANDIDATES)
    for path in (search / "cells").iterdir():
        shutil.move(path, suite / "cells" / path.name)
    study = read_study(suite, search)
    assert len(study.cells) == 6 + 12 and len(final_runs(study.cells)) == 6
    assert study.missing == ()


def test_a_trajectory_that_a_suite_and_a_search_share(tmp_path: Path) -> None:
    search = write_search(tmp_path / "search", {"sd a.b=1": [0.1, 0.1, 0.1]}, order_seed=None)
    suite = write_suite(tmp_path / "suite", PAIR, tasks=8)
    # The suite plans what the search has: one store, the same names.
    names = [path.name for path in sorted((search / "cells").iterdir())]
    table = (suite / "cells.csv").read_text()
    rows = [f"sd,{seed},8,{name},\n" for seed, name in zip(SEEDS, names, strict=True)]
    (suite / "cells.csv").write_text(table + "".join(rows))
    study = read_study(search, suite, tmp_path / "suite" / ".." / "search")
    sd_cells = study.cells[study.cells["method"] == "sd"]
    assert sorted(sd_cells["candidate"]) == ["sd"] * 3 + ["sd a.b=1"] * 3
    assert sd_cells["path"].nunique() == 3 and set(sd_cells["path"]) <= set(study.matrices)
    assert sorted(final_runs(study.cells)["method"].unique()) == sorted([*PAIR, "sd"])
    assert study.missing == ()


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"seed": 10**20}, "a seed of 64 bits or more"),
        ({"stream": {"name": "symbol_qa", "order_seed": "x"}}, "is no trajectory's configuration"),
    ],
)
def test_a_seed_that_no_table_holds_is_named_and_the_rest_goes_on(
    tmp_path: Path, settings: dict[str, object], complaint: str
) -> None:
    write_trajectory(tmp_path / "one", seed=1)
    write_trajectory(tmp_path / "two", seed=2)
    config = json.loads((tmp_path / "one/config.json").read_text())["config"]
    change(tmp_path / "one", config=config | settings)
    study = read_study(tmp_path)
    assert list(study.cells["seed"]) == [2]
    assert complaint in study.missing[0]


def test_nothing_there_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for directories in ([], [tmp_path / "empty"], [tmp_path / "nowhere"]):
        assert "give a directory" in line_of(read_study, *directories)
    assert "cannot be read" in line_of(read_study, tmp_path / ("a" * 300))
