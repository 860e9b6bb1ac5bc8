"""The page carries the numbers of the study, escapes every text, and says what is not there."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from experiments.paper.analysis.factorial import compositions
from holdfast.analysis import analyse, read_study
from holdfast.analysis.configurations import configurations
from holdfast.analysis.study import Study, at_horizon
from holdfast.core.errors import HoldfastError
from holdfast.report.pages import _summary, readable, render, write_page
from holdfast.results import RecallMatrix
from tests.analysis import synthetic
from tests.analysis.synthetic import write_kept
from tests.report.page_study import Read, fading, read, study_of, together

HOSTILE = "</svg><script>x</script><img src=x onerror='x'>&\"$"
MEANS = "symbol_qa: Every mean with its 95% interval"
FINALS = "symbol_qa: Every difference in Final with its interval"
BY_AGE = "symbol_qa: Recall by age, of every method"
ONE_LACKS = {
    ("vanilla", 1): fading(3, 0.5),
    ("vanilla", 2): fading(3, 0.5),
    ("sd", 1): fading(3, 1),
}


def close(text: str, value: float) -> bool:
    return (text == "–" and np.isnan(value)) or abs(float(text) - value) <= 0.000501


@pytest.fixture(scope="module")
def full() -> Study:
    """A complete 2^4 of 20 tasks with three seeds; the more mechanisms, the slower the fading."""
    shares = {
        (tag, seed): 0.3 + 0.15 * sum(levels) + 0.01 * seed
        for tag, levels in compositions().items()
        for seed in (1, 2, 3)
    }
    return study_of({run: fading(20, share) for run, share in shares.items()})


@pytest.fixture(scope="module")
def page_text(full: Study) -> str:
    """The page of ``full``, which takes seconds to draw."""
    return render(full, Path("report.html"))


@pytest.fixture(scope="module")
def small():
    """Of two methods and seeds."""
    runs = [(method, seed) for method in ("vanilla", "sd") for seed in (1, 2)]
    return study_of({run: fading(3, 0.4 + 0.1 * place) for place, run in enumerate(runs)})


def test_the_numbers_are_those_of_the_tables(full, page_text):
    page, tables = Read(page_text), analyse(full).tables
    finals = tables["configurations"].set_index("method")
    rows = page.records("symbol_qa: Configurations")
    assert [row["method"] for row in rows] == list(finals.index)
    for row in rows:
        for metric in ("final", "diag", "forget"):
            value, sd = row[metric].split(" ± ")
            assert close(value, finals.at[row["method"], metric])
            assert close(sd, finals.at[row["method"], f"{metric}_sd"])
    means = tables["means"].set_index(["method", "metric"])
    for row in page.records(MEANS):
        expected = means.loc[row["method"], row["metric"]]
        numbers = [row["value"], *row["95% interval"].split(" to ")]
        assert all(map(close, numbers, expected[["value", "low", "high"]]))
    pairs = tables["differences"].query("metric == 'final'").set_index(["method", "other"])
    assert len(page.records(FINALS)) == len(pairs) == 120
    for row in page.records(FINALS):
        expected = pairs.loc[row["method"], row["other"]]
        numbers = [row["difference"], *row["95% interval"].split(" to ")]
        assert all(map(close, numbers, expected[["difference", "low", "high"]]))
        assert row["noise"] == str(expected["noise"])
    curves = tables["survival"].set_index(["method", "age"])["mean"]
    for row in page.records(BY_AGE):
        assert all(close(row[tag], curves[tag, int(row["age"])]) for tag in compositions())
    assert "si_sd_replay_merge recalls" in page.text and "vanilla, which has no" in page.text


def test_the_means_of_items_and_samples_are_there(tmp_path):
    for method, seed in (("replay_merge", 41), ("replay_merge", 42), ("merge", 41)):
        of = ("items", "samples") if "replay" in method else ("items",)
        write_kept(tmp_path / f"{method}-{seed}", method, seed, 6, of=of)
    study = read_study(tmp_path)
    page, tables = read(study), analyse(study).tables
    rows = page.records("symbol_qa: Items recalled, of every method")
    for row, expected in zip(rows, tables["items"].to_dict("records"), strict=True):
        assert (row["method"], row["group"]) == (expected["method"], expected["group"])
        assert close(row["recalled"], expected["recalled"])
    (row,) = page.records("symbol_qa: Samples")
    assert close(row["right"], tables["samples"]["right"].mean())
    assert {"Items", "Samples"} <= {*page.headings}


def test_the_page_is_small_loads_nothing_and_runs_nothing(page_text):
    images = page_text.count("<image ")
    assert images == 48 + 5 + 3  # all runs, the chain, two colour bars and the noise
    assert len(page_text.encode()) < 500_000
    page = Read(page_text)
    assert not page.named("script") and not page.named("link")
    (policy,) = [named["content"] for named in page.named("meta") if "http-equiv" in named]
    assert policy.startswith("default-src 'none'; img-src data:; style-src 'unsafe-inline'")
    assert not re.search(r"https?:", page_text)
    attributes = [pair for _, named in page.elements for pair in named.items()]
    places = ("href", "xlink:href", "src", "action")
    addresses = [value for name, value in attributes if name in places]
    assert addresses and all(re.match(r"#|data:image/png|\./", address) for address in addresses)
    assert not [name for name, _ in attributes if name.startswith("on")]
    assert set(re.findall(r"url\((.)", page_text)) == {"#"}


def test_text_of_any_kind_is_only_text(tmp_path):
    runs = {(method, seed): fading(3, 0.5) for method in (HOSTILE, "vanilla") for seed in (1, 2)}
    page = read(study_of(runs, dataset=HOSTILE, missing=(HOSTILE,)), title=HOSTILE)
    facts = tmp_path / "facts.jsonl"
    fact = {"answer": HOSTILE}
    places = [(task, item) for task in range(3) for item in range(8)]
    lines = [fact | {"task": str(place[0]), "question": f"{HOSTILE}{place}"} for place in places]
    facts.write_text("".join(json.dumps(line) + "\n" for line in lines))
    write_kept(tmp_path / "run", "merge", 41, 3, of=("items",))
    config = json.loads((tmp_path / "run" / "config.json").read_text())["config"]
    synthetic.change(
        tmp_path / "run", config=config | {"stream": {"name": str(facts)}, "x": HOSTILE}
    )
    items = read(read_study(tmp_path / "run"))
    assert "Items" in items.headings
    for document in (page, items):
        assert not document.named("script") and not document.named("img")
        assert HOSTILE in document.text.replace('\\"', '"')
    assert page.text.count(HOSTILE) > 8


def test_every_figure_is_described_and_every_column_has_a_heading(small, tmp_path, monkeypatch):
    two = together(small, study_of({("sd", 1): fading(3, 0.5)}, dataset="real_qa"))
    text = render(two, Path("report.html"))
    monkeypatch.chdir(tmp_path)  # equal studies are equal files
    assert write_page(two, "report.html").read_bytes() == text.encode()
    page = Read(text)
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    figures = page.named("svg")
    assert len(figures) == len(page.named("figure")) == 6
    for figure in figures:
        assert figure["role"] == "img"
        title, description = figure["aria-labelledby"].split()
        assert {title, description} <= {*ids}
    assert len(page.named("title")) == 1 + len(figures) and len(page.named("desc")) == len(figures)
    assert all(attributes.get("scope") in ("col", "row") for attributes in page.named("th"))
    assert all(len({*map(len, rows)}) == 1 for rows in page.tables.values())


def test_what_is_missing_or_damaged_is_one_line_each(tmp_path):
    methods, absent = ("vanilla", "sd_merge"), [("sd_merge", 42)]
    suite = synthetic.write_suite(tmp_path / "suite", methods, (41, 42), tasks=3, absent=absent)
    (damaged,) = (suite / "cells").glob("vanilla-42-*")
    (damaged / "matrix.csv").write_text("after_task,on_task\n1,what")
    study = read_study(suite)
    page = read(study, tmp_path / "report.html")
    assert len(study.missing) == 2 and "What is missing" in page.headings
    assert all(page.text.count(line) == 1 for line in study.missing)
    assert any("matrix.csv" in line for line in study.missing)
    rows = page.records("symbol_qa: Configurations")
    assert [row["method"] for row in rows] == ["sd_merge", "vanilla"]


def test_a_run_that_is_there_twice_is_said_and_the_matrices_are_there(small):
    again = study_of({("sd", 1): fading(3, 0.9)})
    (matrix,) = again.matrices.values()
    twice = Study(again.cells.assign(path="again"), {"again": matrix}, {}, ())
    page = read(together(small, twice, study_of({("sd", 1): fading(3, 0.5)}, dataset="real_qa")))
    assert page.text.count("symbol_qa: sd with seed 1 is there twice, in ") == 1
    assert "symbol_qa: Configurations" not in page.tables
    assert "real_qa: Configurations" in page.tables
    assert "seed 1 again" in page.text and "Recall matrices" in page.headings


@pytest.mark.parametrize(
    ("matrices", "words"),
    [
        ({("vanilla", 41): RecallMatrix().with_row(0, {1: (0, 20)})}, "Nothing has been learned"),
        ({("vanilla", 41): fading(5, 0.5)}, "One seed was run"),
        ({("sd", 41): fading(5, 0.5).with_row(6, {6: (1, 2)})}, "so no Final is known"),
        (ONE_LACKS, "Of sd only 1 of 2 seeds are finished."),
    ],
)
def test_the_first_sentences_say_how_much_is_known(matrices, words):
    cells = study_of(matrices).cells
    assert words in " ".join(_summary(at_horizon(cells), configurations(cells)))


def test_a_search_alone_shows_its_candidates_and_its_finalists_once(tmp_path):
    scores = {"sd lr=1": (0.9, 0.5), "sd lr=2": (0.8, 0.6), "merge lr=9": (float("nan"),)}
    for name in ("one", "other"):
        synthetic.write_search(tmp_path / name, scores, horizons=(2, 4), seeds=(1,))
    page = read(read_study(tmp_path), tmp_path / "report.html")
    rows = page.records("symbol_qa: Configurations")
    assert sorted(row["method"] for row in rows) == ["sd lr=1", "sd lr=2"]
    search = {(row["candidate"], row["horizon"]): row for row in page.records("symbol_qa: Search")}
    assert search["sd lr=2", "4"]["score"] == "0.600"
    assert search["merge lr=9", "2"]["score"] == "–"


def test_every_run_has_its_identity_its_files_and_its_settings(tmp_path):
    suite = synthetic.write_suite(tmp_path / "studies" / "suite", ("vanilla", "sd"), (1,), tasks=3)
    synthetic.write_trajectory(tmp_path / "own", "merge", 1, 3, settings={"optim.lr": 0.5})
    study = read_study(suite, tmp_path / "own")
    (tmp_path / "reports").mkdir()
    path = write_page(study, tmp_path / "reports" / "report.html")
    text = path.read_text(encoding="utf-8")
    page = Read(text)
    for place in study.cells["path"]:
        assert json.loads((Path(place) / "config.json").read_text())["identity"] in text
    links = [attributes["href"] for attributes in page.named("a")]
    assert len(links) == 6 and all((path.parent / link).is_file() for link in links)
    assert str(tmp_path) not in text  # no place but those beside the page
    settings = {row["setting"]: row["value"] for row in page.records("Their settings")}
    assert (settings["lora.rank"], settings["optim.lr"]) == ("32", "0.5 in 1 run")


def test_what_cannot_be_a_page_is_refused(small, tmp_path):
    with pytest.raises(HoldfastError, match="no trajectory and no search"):
        render(Study(small.cells.iloc[:0], {}, {}, ()), tmp_path / "report.html")
    (tmp_path / "file").write_text("")
    with pytest.raises(HoldfastError, match="file"):
        write_page(study_of({("sd", 1): fading(3, 0.5)}), tmp_path / "file" / "report.html")


def test_neither_torch_nor_pyplot_is_needed():
    check = "import sys, holdfast.report as r; assert all(map(r.__dict__.get, r.__all__));"
    check += "assert not {'torch', 'matplotlib.pyplot'} & {*sys.modules}"
    subprocess.run([sys.executable, "-c", check], check=True, timeout=120)


def test_half_lives_of_one_task_are_no_shares() -> None:
    table = pd.DataFrame({"half_life": [1.0], "retention": [0.25], "low": [1.0], "high": [1.0]})
    assert readable(table).to_dict("records") == [
        {"half_life": "1", "retention": "0.250", "95% interval": "1 to 1"}
    ]
