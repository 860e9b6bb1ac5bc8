"""`python -m experiments.paper analyse` and `compare`, on studies that took no model."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from tests.analysis.synthetic import FACTORIAL, SEEDS, write_search, write_suite


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole factorial of six tasks, only read."""
    place = tmp_path_factory.mktemp("studies") / "suite"
    return write_suite(place, methods=FACTORIAL, seeds=SEEDS, tasks=6)


FEW = ("vanilla", "replay", "merge", "replay_merge")


def test_a_whole_factorial_gives_every_table_of_a_suite(paper, suite: Path, tmp_path: Path) -> None:
    scores = {method: [0.9 - 0.01 * place] for place, method in enumerate(FEW)}
    scores["replay"].append(0.4)
    write_search(tmp_path / "search", scores, horizons=(2, 6))
    place = tmp_path / "both"
    done = paper("analyse", suite, tmp_path / "search", "--out", place)
    assert done.status == 0, done.err
    assert done.out.splitlines()[-1] == str(place)
    effects = pd.read_csv(place / "effects.csv")
    assert len(effects) == 15
    assert effects["effect"].abs().is_monotonic_decreasing
    assert json.loads((place / "effects.json").read_text())[0]["term"] == effects["term"][0]
    table = pd.read_csv(place / "configurations.csv")
    assert list(table["method"])[-1] == "vanilla"
    assert set(table["seeds"]) == {3}
    text = (place / "analysis.md").read_text()
    assert "## effects" in text
    assert list(pd.read_csv(place / "search_transfer.csv")["horizon"]) == [2, 6]
    assert (place / "selection.csv").exists()
    cells = pd.read_csv(place / "cells.csv")
    assert all((place / path / "matrix.csv").exists() for path in cells["path"])  # relative
    drawn = sorted(path.stem for path in (place / "figures").glob("*.png"))
    assert drawn == ["build_up", "compositions", "matrices", "noise", "search", "survival"]
    controls = pd.read_csv(place / "controls.csv")
    assert len(controls) == 16 and set(controls["box_emission"]) == {1.0}
    assert (place / "datasets.csv").exists()


def test_a_data_set_that_is_not_complete_does_not_stop_another(paper, tmp_path: Path) -> None:
    write_suite(tmp_path / "symbol", methods=FACTORIAL, seeds=SEEDS, tasks=4)
    write_suite(tmp_path / "llm", FACTORIAL, SEEDS, 4, dataset="llm_qa", absent=[("si_merge", 42)])
    out = tmp_path / "both"
    done = paper("analyse", tmp_path / "symbol", tmp_path / "llm", "--out", out, "--no-figures")
    assert done.status == 0, done.err
    effects = pd.read_csv(out / "effects.csv")
    assert set(effects["dataset"]) == {"symbol_qa"} and len(effects) == 15
    assert list(effects.columns)[:2] == ["dataset", "term"]
    reason = "llm_qa: si_merge has no cell with seed 42"
    (line,) = (line for line in done.out.splitlines() if reason in line)
    assert "effects of llm_qa" in line
    assert "ranks" in line  # they need all
    assert set(pd.read_csv(out / "synergy.csv")["dataset"]) == {"symbol_qa", "llm_qa"}


def test_what_can_no_longer_be_made_does_not_stay(paper, tmp_path: Path) -> None:
    suite = write_suite(tmp_path / "suite", methods=FACTORIAL, seeds=(41,), tasks=3)
    assert paper("analyse", suite, "--no-figures").status == 0
    assert (suite / "analysis" / "effects.csv").exists()
    (gone,) = (suite / "cells").glob("si_merge-41-*")
    (gone / "config.json").unlink()
    done = paper("analyse", suite, "--no-figures")
    text = (suite / "analysis" / "analysis.md").read_text()
    assert "no effects, " in done.out and "- search_transfer: no search" in text
    assert "si_merge" in next(line for line in done.out.splitlines() if line.startswith("missing"))
    files = {path.name for path in (suite / "analysis").iterdir()}
    assert not files & {"effects.csv", "effects.json"} and "configurations.csv" in files


def test_beside_the_paper(paper, suite: Path, tmp_path: Path) -> None:
    done = paper("compare", suite, "--with", "paper", "--out", tmp_path / "beside")
    assert done.status == 0, done.err
    assert "note: symbol_qa: final retention after 6 tasks, the paper's after 100" in done.out
    beside = pd.read_csv(tmp_path / "beside" / "compared_compositions.csv")
    finals = beside.set_index("method")["final_paper"]
    assert finals["sd_replay_merge"] == pytest.approx(0.232)
    assert len(pd.read_csv(tmp_path / "beside" / "compared_effects.csv")) == 15
    metrics = pd.read_csv(tmp_path / "beside" / "compared_metrics.csv")
    assert set(metrics["metric"]) == {"diag", "forget"}  # six tasks give no W(10)
    assert len(metrics) == 16 * 2
    lives = pd.read_csv(tmp_path / "beside" / "compared_half_lives.csv").set_index("role")
    assert lives["half_life_paper"]["strongest composition"] == 19
    assert "half lives" in done.out
    refused = paper("compare", tmp_path / "nothing")
    assert (refused.status, refused.err.count("\n")) == (2, 1)
