"""The page carries the numbers of the study, escapes every text, and says what is not there."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.analysis.composition import compositions
from holdfast.analysis.factorial import factorial
from holdfast.analysis.study import read_study
from holdfast.analysis.tables import analyse
from holdfast.report.page import render, write_page
from holdfast.report.page.embedding import by_column, encoded, script_json
from holdfast.results import RecallMatrix
from tests.analysis import synthetic
from tests.report.page_reader import Read, read
from tests.report.page_study import fading, study_of

HOSTILE = "</script><script>alert(1)</script><!-- \u2028 & 'quoted' \"too\""


@settings(max_examples=40)
@given(st.dictionaries(st.text(), st.lists(st.text())))
def test_json_in_a_script_is_the_value_and_has_no_markup(value):
    text = script_json({"value": value, "hostile": HOSTILE})
    assert json.loads(text) == {"value": value, "hostile": HOSTILE}
    assert not set(text) & set("<>&\u2028\u2029")


@st.composite
def matrices(draw):
    """Any matrix: rows left out, entries unobserved, transfer entries, one or many task sizes."""
    matrix = RecallMatrix()
    sizes = st.sampled_from(draw(st.sampled_from([(7,), (254,), (255,), (3, 900), (70_000,)])))
    for after_task in sorted(draw(st.sets(st.integers(0, 6), min_size=1))):
        row = {}
        for on_task in draw(st.sets(st.integers(1, after_task + 1), min_size=1)):
            items = draw(sizes)
            row[on_task] = (draw(st.sampled_from([0, items // 2, items])), items)
        matrix = matrix.with_row(after_task, row)
    return matrix


@settings(max_examples=40)
@given(matrices())
def test_the_bytes_of_a_matrix_are_its_counts(matrix):
    carried = encoded(matrix)

    def counts(text: str) -> list[int]:
        kind = np.dtype(f"<u{carried['width']}")
        values = np.frombuffer(base64.b64decode(text), kind).astype(np.int64)
        return [-1 if value == np.iinfo(kind).max else int(value) for value in values]

    correct = counts(carried["correct"])
    same = isinstance(carried["items"], int)
    items = [carried["items"]] * len(correct) if same else counts(carried["items"])
    found, place = {}, 0
    for after_task in range(carried["tasks"] + 1):
        for on_task in range(1, after_task + 2):
            if correct[place] >= 0:
                found[after_task, on_task] = (correct[place], items[place])
            place += 1
    assert place == len(correct)
    assert found == {(i, j): tuple(entry[:2]) for i, j, entry in matrix.entries()}


def test_a_table_by_column_has_none_for_what_is_missing():
    table = pd.DataFrame(
        {
            "a": [1.0, np.nan, np.inf],
            "b": pd.array([1, None, 3], dtype="Int64"),
            "c": ["x", None, HOSTILE],
            "d": [1 / 3, 1e-30, 123_456_789.123],
        }
    )
    assert by_column(table) == {
        "a": [1.0, None, None],
        "b": [1, None, 3],
        "c": ["x", None, HOSTILE],
        "d": [0.33333333, 1e-30, 123_456_790.0],
    }


def test_the_headline_and_the_table_are_means_and_deviations():
    finals = {"merge": (0.5, 0.7, 0.9), "vanilla": (0.1, 0.1, 0.25)}
    study = study_of(
        {
            (method, seed): RecallMatrix().with_row(1, {1: (round(20 * share), 20)})
            for method, shares in finals.items()
            for seed, share in enumerate(shares)
        }
    )
    page = read(study)
    told = " ".join(page.text.split())
    # (0.1 + 0.1 + 0.25) / 3 = 0.15, its deviation sqrt(0.0075); 0.7 / 0.15 = 4.67
    assert "merge 70.0 ± 20.0 % vanilla 15.0 ± 8.7 % ratio 4.7×" in told
    assert [row[:3] for row in page.rows[:3]] == [
        ["Method", "Seeds", "Final, %"],
        ["merge", "3", "70.0 ± 20.0"],
        ["vanilla", "3", "15.0 ± 8.7"],
    ]


def test_the_factorial_table_is_that_of_the_analysis(full):
    page = read(full)
    expected = factorial(full.cells).effects.set_index("term")
    start = next(place for place, row in enumerate(page.rows) if row[0] == "Term")
    shown = {row[0].replace(" × ", ":"): row[1] for row in page.rows[start + 1 : start + 16]}
    assert {term: text.replace("−", "-") for term, text in shown.items()} == {
        term: f"{100 * effect:+.1f}" for term, effect in expected["effect"].items()
    }
    made = analyse(full).tables["effects"].set_index("term")
    bounds = [row[2].replace("−", "-") for row in page.rows[start + 1 : start + 16]]
    assert bounds == [
        f"{100 * made.at[term, 'low']:+.1f} to {100 * made.at[term, 'high']:+.1f}"
        for term in expected.index
    ]
    carried = page.data["views"][0]["explorer"]["effects"]["replay"]["effect"]
    assert carried == pytest.approx(expected.at["replay", "effect"], rel=1e-7)


def test_an_incomplete_factorial_says_why_and_missing_seeds_are_named(tmp_path):
    directory = synthetic.write_suite(
        tmp_path / "suite", tasks=3, seeds=(41, 42), absent=[("sd_merge", 42)]
    )
    study = read_study(directory)
    page = read(study, tmp_path / "report.html")
    assert "There is no factorial table. symbol_qa: sd_merge has no cell with seed 42" in page.text
    assert "What is missing" in page.headings
    assert study.missing and all(line in page.text for line in study.missing)
    assert any("sd_merge" in line and "42" in line for line in study.missing)


def test_an_unfinished_run_is_shown_but_not_averaged():
    study = study_of({("vanilla", 1): fading(6, 0.5), ("merge", 1): fading(4, 0.9)})
    page = read(study)
    assert [row[0] for row in page.rows[:2]] != ["Method", "merge"]
    view = page.data["views"][0]
    assert (view["horizon"], view["methods"]) == (6, ["vanilla", "merge"])
    assert {run["method"]: run["matrix"]["tasks"] for run in view["runs"]} == {
        "vanilla": 6,
        "merge": 4,
    }
    assert list(view["means"]) == ["vanilla"]


def test_fewer_seeds_of_the_best_method_are_told():
    runs = {("vanilla", seed): fading(3, 0.5) for seed in (1, 2, 3)} | {("sd", 1): fading(3, 0.9)}
    assert "Of sd only 1 of 3 seeds is finished." in read(study_of(runs)).text


def test_a_single_run_has_a_small_page_without_empty_sections():
    page = read(study_of({("vanilla", 41): fading(5, 0.5)}))
    assert page.headings == [
        "Recall matrix",
        "Survival",
        "Where the numbers come from",
        "Downloads",
    ]
    assert "symbol_qa · 5 tasks · vanilla · seed 41" in page.text
    assert "one seed, so there is no spread to tell" in page.text


def test_two_methods_have_a_table_but_no_explorer_and_no_factorial():
    runs = {(method, 41): fading(5, 0.5) for method in ("vanilla", "replay_merge")}
    page = read(study_of(runs))
    assert page.headings[:3] == ["Configurations", "Recall matrices", "Survival"]
    assert not {"Compositions", "Factorial", "Search", "What is missing"} & set(page.headings)


def test_a_search_alone_shows_its_candidates_and_its_stages(tmp_path):
    scores = {"sd lr=1": (0.9, 0.5), "sd lr=2": (0.8, 0.6), "vanilla lr=1": (0.2,)}
    scores["merge lr=9"] = (float("nan"),)
    directory = synthetic.write_search(tmp_path / "search", scores, horizons=(2, 4), seeds=(1,))
    page = read(read_study(directory), tmp_path / "report.html")
    assert page.row("2 tasks") == ["2 tasks", "4", "2", "1", "90.0%", "sd lr=1"]
    assert page.row("4 tasks") == ["4 tasks", "2", "0", "0", "60.0%", "sd lr=2"]
    assert "2 candidates" in page.text
    view = page.data["views"][0]
    assert sorted(view["methods"]) == ["sd lr=1", "sd lr=2"]
    assert [one["score"] for one in view["search"] if one["candidate"] == "merge lr=9"] == [None]


def test_every_run_has_its_identity_and_its_place(tmp_path):
    suite = synthetic.write_suite(tmp_path / "studies" / "suite", ("vanilla", "sd"), (1,), tasks=3)
    other = synthetic.write_trajectory
    other(tmp_path / "own", "merge", 1, 3, settings={"optim.lr": 0.5})
    study = read_study(suite, tmp_path / "own")
    path = tmp_path / "reports" / "report.html"
    write_page(study, analyse(study), path)
    text = path.read_text(encoding="utf-8")
    page = Read(text)
    for place in study.cells["path"]:
        identity = json.loads((Path(place) / "config.json").read_text())["identity"]
        assert identity in text and identity[:12] in page.text
    links = [link for link in page.addresses if link.endswith("config.json")]
    assert len(links) == 3
    assert all((path.parent / link).is_file() for link in links)
    # A finished study names no place but those beside the page.
    assert str(tmp_path) not in text
    assert "optim.lr" not in [row[0] for row in page.rows]
    assert "optim.lr = 0.5" in page.row("merge")[-1] or any(
        row[0] == "merge" and "optim.lr = 0.5" in row[-1] for row in page.rows
    )


def test_runs_without_a_readable_configuration_are_counted(full):
    assert "config.json of 32 runs could not be read." in read(full).text


def test_text_of_any_kind_is_only_text():
    runs = {(method, 1): fading(3, 0.5) for method in (HOSTILE, "vanilla", "sd")}
    study = study_of(runs, dataset=HOSTILE, missing=(HOSTILE,))
    made = analyse(study)
    more = {**made.tables, "more": pd.DataFrame({HOSTILE: [HOSTILE]})}
    page = Read(render(study, replace(made, tables=more), Path("a.html"), title=HOSTILE))
    plain = read(study_of({("vanilla", 1): fading(3, 0.5)}))
    assert len(page.scripts) == 2
    assert page.scripts[1] == plain.scripts[1]
    assert page.text.count(HOSTILE) >= 4
    assert page.data["views"][0]["name"] == HOSTILE


def test_the_policy_allows_this_script_and_this_style_and_no_address(full):
    page = read(full)
    for text in (page.scripts[1][1], "".join(page.styles)):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in page.policy
    assert "default-src 'none'" in page.policy
    assert "unsafe" not in page.policy and "http" not in page.policy
    local = re.compile(r"data:,|#missing|\./[^:]*")
    assert all(local.fullmatch(address) for address in page.addresses)
    parsers = ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(")
    assert not any(parser in page.scripts[1][1] for parser in parsers)


def test_a_large_study_is_small():
    tags = [
        *compositions(),
        "online_ewc",
        "olora",
        "osrm",
        "si_sd_replay_olora",
        "si_sd_replay_osrm",
    ]
    matrix = fading(100, 0.97, items=100)
    study = study_of({(tag, seed): matrix for tag in tags for seed in (41, 42, 43)})
    assert len(render(study, analyse(study), Path("report.html")).encode()) < 1_500_000
