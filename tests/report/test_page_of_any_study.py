"""One page for every study: repeated runs, searches alone, several data sets, nothing at all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from holdfast import analysis
from holdfast.analysis.factorial import factorial
from holdfast.analysis.study import Study, read_study
from holdfast.analysis.tables import analyse
from holdfast.core.errors import HoldfastError
from holdfast.report.page import render, write_page
from holdfast.report.page.embedding import by_column
from holdfast.results import RecallMatrix
from tests.analysis import synthetic
from tests.report.page_reader import read
from tests.report.page_study import fading, study_of, together


def test_equal_studies_are_equal_files(full, tmp_path):
    first = write_page(full, analyse(full), tmp_path / "a.html")
    second = write_page(full, analyse(full), tmp_path / "b.html")
    assert first.read_bytes() == second.read_bytes()


def test_the_tables_of_the_page_are_those_of_the_analysis_each_once(full):
    carried, tables = read(full).data["tables"], analyse(full).tables
    assert list(carried) == [*tables, "cells"]
    assert all(carried[name] == by_column(tables[name]) for name in tables)


def test_no_curve_and_no_factorial_is_made_twice(full, monkeypatch):
    made: list[str] = []

    def counted(module: Any, name: str) -> None:
        real = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *given: made.append(name) or real(*given))

    counted(analysis.curves, "retention_by_age")
    counted(analysis.tables, "factorial")
    read(full)
    assert (made.count("retention_by_age"), made.count("factorial")) == (len(full.cells), 1)


def test_the_finalists_of_a_search_can_be_downloaded_beside_the_runs_of_a_suite(tmp_path: Path):
    suite = synthetic.write_suite(tmp_path / "suite", ["vanilla", "merge"], seeds=(41,), tasks=3)
    scores = {"sd a.b=1": [0.3, 0.2], "sd a.b=2": [0.5]}
    search = synthetic.write_search(tmp_path / "search", scores, (2, 4), dataset="real_qa")
    tables = read(read_study(suite, search)).data["tables"]
    shown = zip(
        tables["configurations"]["dataset"], tables["configurations"]["method"], strict=True
    )
    assert set(shown) == {
        ("symbol_qa", "merge"),
        ("symbol_qa", "vanilla"),
        ("real_qa", "sd a.b=1"),
    }
    assert set(tables["state_size"]["dataset"]) == {"symbol_qa"}  # a candidate is no method


def test_the_downloaded_searches_say_whose_each_line_is(tmp_path: Path):
    scores = {"merge": [0.3, 0.2], "sd": [0.5]}
    folders = [
        synthetic.write_search(tmp_path / name, scores, (2, 4), dataset=name)
        for name in ("symbol_qa", "real_qa")
    ]
    study = read_study(*folders)
    downloaded = read(study).data["tables"]["search"]
    assert next(iter(downloaded)) == "dataset"
    wanted = [name for name, trace in study.traces.items() for _ in range(len(trace))]
    assert downloaded["dataset"] == wanted
    assert {len(column) for column in downloaded.values()} == {len(wanted)}


def twice(full: Study, method: str) -> Study:
    """The study and a second run of one method and seed, in another directory."""
    again = study_of({(method, 1): fading(6, 0.9)})
    (path,) = again.matrices
    cells = again.cells.assign(path="again/" + path)
    return together(full, Study(cells, {"again/" + path: again.matrices[path]}, {}, ()))


def test_a_run_that_is_there_twice_is_said_and_the_rest_of_the_page_is_there(full):
    extra = study_of({("olora", 1): fading(6, 0.8)})
    other = study_of({("vanilla", 1): fading(4, 0.5)}, dataset="real_qa")
    page = read(together(twice(together(full, extra), "olora"), other))
    why = "There are no means over seeds. symbol_qa: olora with seed 1 is there twice, in "
    assert why + "symbol_qa/cells/olora-1 and again/symbol_qa/cells/olora-1; leave" in page.text
    assert page.headings[:3] == ["Recall matrices", "Factorial", "Recall matrix"]
    # The factorial needs no O-LoRA, and the other data set nothing of this one.
    effects = factorial(full.cells).effects.set_index("term")["effect"]
    assert page.row("replay")[1] == f"{100 * effects['replay']:+.1f}"
    assert page.data["tables"]["configurations"]["dataset"] == ["real_qa"]
    first, second = page.data["views"]
    assert len(first["runs"]) == 34 and not first["curves"] and not first["means"]
    assert list(second["means"]) == ["vanilla"]


def test_a_factorial_with_a_run_that_is_there_twice_is_refused_by_name(full):
    page = read(twice(full, "sd_merge"))
    assert (
        "There is no factorial table. symbol_qa: sd_merge with seed 1 is there twice" in page.text
    )
    assert "Compositions" not in page.headings


def test_two_datasets_are_two_parts_of_one_page(full):
    other = study_of({("vanilla", 1): fading(4, 0.5)}, dataset="real_qa")
    page = read(together(full, other))
    assert [view["name"] for view in page.data["views"]] == ["symbol_qa", "real_qa"]
    rows = zip(*page.data["tables"]["configurations"].values(), strict=True)
    assert len(list(rows)) == 17


def test_a_study_of_nothing_and_an_unwritable_place_are_refused(full, tmp_path):
    nothing = Study(full.cells.iloc[:0], {}, {}, ())
    with pytest.raises(HoldfastError, match="no trajectory and no search"):
        render(nothing, analyse(nothing), tmp_path / "report.html")
    (tmp_path / "file").write_text("")
    with pytest.raises(HoldfastError, match="file"):
        write_page(full, analyse(full), tmp_path / "file" / "report.html")


def test_the_page_needs_no_torch():
    check = "import sys, holdfast.report.page; assert not {'torch', 'matplotlib'} & {*sys.modules}"
    subprocess.run([sys.executable, "-c", check], check=True, timeout=60)


def test_a_search_without_runs_is_a_page(full):
    row = {"horizon": 2, "rank": 1, "candidate": "sd lr=1", "method": "sd", "score": 0.5}
    trace = pd.DataFrame([row | {"fate": "finished", "error": None}])
    page = read(Study(full.cells.iloc[:0], {}, {"real_qa": trace}, ()))
    assert page.headings == ["Search", "Where the numbers come from", "Downloads"]
    assert "No trajectory has been evaluated yet." in page.text


def test_a_run_that_learned_nothing_yet_is_a_page():
    untouched = RecallMatrix().with_row(0, {1: (0, 20)})
    page = read(study_of({("vanilla", 41): untouched}))
    assert "Nothing has been learned yet." in page.text
    assert page.headings == ["Where the numbers come from", "Downloads"]


def test_runs_in_another_order_are_not_shown_among_the_others(tmp_path: Path) -> None:
    synthetic.write_suite(tmp_path / "suite", ["vanilla", "merge"], seeds=(41,), tasks=4)
    again = np.zeros((4, 4), dtype=np.int64)
    synthetic.write_trajectory(
        tmp_path / "other", "merge", 41, tasks=4, correct=again, order_seed=7
    )
    (view,) = read(read_study(tmp_path)).data["views"]
    shown = sorted((run["method"], run["final"] > 0) for run in view["runs"])
    assert shown == [("merge", True), ("vanilla", True)]


def test_two_searches_that_share_their_trajectories(tmp_path: Path) -> None:
    candidates = {"sd a.b=1": [0.3, 0.2], "sd a.b=2": [0.5, 0.4]}
    for name in ("one", "other"):
        synthetic.write_search(tmp_path / name, candidates, horizons=(2, 4), seeds=(41,))
    (view,) = read(read_study(tmp_path)).data["views"]
    assert sorted(view["methods"]) == ["sd a.b=1", "sd a.b=2"]
    assert len(view["runs"]) == 2
