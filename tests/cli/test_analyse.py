"""`holdfast analyse`, `compare` and `report`, on studies that took no model."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from tests.analysis.synthetic import (
    FACTORIAL,
    PAPER,
    SEEDS,
    write_search,
    write_suite,
    write_trajectory,
)

FEW = ("vanilla", "replay", "merge", "replay_merge")
MEASURED = """
import contextlib, pathlib, sys, time
from holdfast.cli.main import app
with contextlib.suppress(SystemExit):
    app()
status = pathlib.Path("/proc/self/status").read_text()
print(time.process_time(), status.partition("VmHWM:")[2].split()[0], file=sys.stderr)
"""


def test_a_whole_factorial_gives_every_table_of_a_suite(holdfast, tmp_path: Path) -> None:
    write_suite(tmp_path / "suite", methods=FACTORIAL, seeds=SEEDS, tasks=12)
    done = holdfast("analyse", tmp_path / "suite")
    assert done.status == 0, done.err
    place = tmp_path / "suite" / "analysis"
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
    assert "- search_transfer: no search" in text
    cells = pd.read_csv(place / "cells.csv")
    assert all((place / path / "matrix.csv").exists() for path in cells["path"])  # relative
    drawn = {path.name for path in (place / "figures").iterdir()}
    assert drawn == {
        f"{name}.{kind}"
        for name in ("survival", "compositions", "noise", "build_up", "matrices")
        for kind in ("pdf", "png")
    }
    assert "figure search: no search" in done.out
    controls = pd.read_csv(place / "controls.csv")
    assert len(controls) == 16 and set(controls["box_emission"]) == {1.0}
    (sizes,) = pd.read_csv(place / "datasets.csv").to_dict("records")
    assert sizes == {
        "dataset": "symbol_qa", "tasks": 12, "items": 240, "items_least": 20, "items_most": 20,
        "methods": 16, "runs": 48,
    }  # fmt: skip


def test_analysed_twice_the_results_are_the_same_bytes(holdfast, tmp_path: Path) -> None:
    write_suite(tmp_path / "suite", methods=("vanilla", "replay"), seeds=SEEDS, tasks=4)
    found = []
    for _ in range(2):
        assert holdfast("analyse", tmp_path / "suite").status == 0
        place = tmp_path / "suite" / "analysis"
        files = [path for path in sorted(place.rglob("*")) if path.is_file()]
        found.append({path.name: path.read_bytes() for path in files})
    assert found[0] == found[1]


def test_what_is_missing_is_named_and_the_rest_is_there(holdfast, tmp_path: Path) -> None:
    write_suite(tmp_path / "suite", methods=FACTORIAL, seeds=SEEDS, tasks=4)
    (gone,) = (tmp_path / "suite" / "cells").glob("si_merge-42-*")
    (gone / "config.json").unlink()
    done = holdfast("analyse", tmp_path / "suite", "--no-figures")
    assert done.status == 0, done.err
    assert "si_merge" in next(line for line in done.out.splitlines() if line.startswith("missing"))
    reason = "symbol_qa: si_merge has no cell with seed 42"
    (line,) = (line for line in done.out.splitlines() if reason in line)
    assert line.startswith("no effects, factorial_model, ranks")
    table = pd.read_csv(tmp_path / "suite" / "analysis" / "configurations.csv")
    assert table.set_index("method").at["si_merge", "seeds"] == 2


@pytest.mark.parametrize("verb", ["analyse", "report", "compare"])
def test_a_run_that_is_there_twice_stops_no_command(holdfast, tmp_path: Path, verb: str) -> None:
    suite = write_suite(tmp_path / "suite", (*FEW, "other"), SEEDS, tasks=4)
    write_trajectory(tmp_path / "again", "other", SEEDS[0], tasks=4)
    done = holdfast(verb, suite, tmp_path / "again", "--out", tmp_path / "out")
    assert done.status == 0, done.err
    if verb == "analyse":
        (line,) = [line for line in done.out.splitlines() if "other with seed 41 is there" in line]
        assert line.startswith("no datasets, configurations, ") and "figure matrices" in line
        assert len(pd.read_csv(tmp_path / "out" / "effects.csv")) == 3


@pytest.mark.parametrize("verb", ["analyse", "report", "compare"])
def test_a_run_that_went_further_than_the_others_is_told(
    holdfast, tmp_path: Path, verb: str
) -> None:
    suite = write_suite(tmp_path / "suite", FEW, SEEDS[1:], tasks=4)
    write_trajectory(tmp_path / "far", "merge", SEEDS[0], tasks=6)
    done = holdfast(verb, suite, tmp_path / "far", "--out", tmp_path / "out")
    assert done.status == 0, done.err
    line = "symbol_qa: read after 4 tasks, as far as at least half of its runs have come; "
    line += "read there too, though further on: merge seed 41 (6 tasks)"
    said = (tmp_path / "out").read_text() if verb == "report" else done.out
    assert said.count(line) == 1
    if verb == "analyse":
        table = pd.read_csv(tmp_path / "out" / "configurations.csv").set_index("method")
        assert set(table["horizon"]) == {4} and table.at["merge", "seeds"] == 3


def test_a_suite_and_its_search_are_set_beside_each_other(holdfast, tmp_path: Path) -> None:
    write_suite(tmp_path / "suite", methods=FACTORIAL, seeds=SEEDS, tasks=8)
    scores = {method: [0.9 - 0.01 * place] for place, method in enumerate(FACTORIAL)}
    for method in FACTORIAL[:8]:
        scores[method].append(scores[method][0] / 2)
    write_search(tmp_path / "search", scores, horizons=(2, 8))
    done = holdfast("analyse", tmp_path / "suite", tmp_path / "search", "--out", tmp_path / "both")
    assert done.status == 0, done.err
    transfer = pd.read_csv(tmp_path / "both" / "search_transfer.csv")
    assert list(transfer["horizon"]) == [2, 8]
    assert (tmp_path / "both" / "figures" / "search.pdf").exists()
    assert (tmp_path / "both" / "selection.csv").exists()


def test_a_data_set_that_is_not_complete_does_not_stop_another(holdfast, tmp_path: Path) -> None:
    write_suite(tmp_path / "symbol", methods=FACTORIAL, seeds=SEEDS, tasks=4)
    write_suite(tmp_path / "llm", FACTORIAL, SEEDS, 4, dataset="llm_qa", absent=[("si_merge", 42)])
    out = tmp_path / "both"
    done = holdfast("analyse", tmp_path / "symbol", tmp_path / "llm", "--out", out, "--no-figures")
    assert done.status == 0, done.err
    effects = pd.read_csv(out / "effects.csv")
    assert set(effects["dataset"]) == {"symbol_qa"} and len(effects) == 15
    assert list(effects.columns)[:2] == ["dataset", "term"]
    reason = "llm_qa: si_merge has no cell with seed 42"
    (line,) = (line for line in done.out.splitlines() if reason in line)
    assert "effects of llm_qa" in line
    assert "ranks" in line  # they need all
    assert set(pd.read_csv(out / "synergy.csv")["dataset"]) == {"symbol_qa", "llm_qa"}


def test_what_can_no_longer_be_made_does_not_stay(holdfast, tmp_path: Path) -> None:
    suite = write_suite(tmp_path / "suite", methods=FACTORIAL, seeds=(41,), tasks=3)
    assert holdfast("analyse", suite).status == 0
    assert (suite / "analysis" / "figures" / "build_up.pdf").exists()
    (gone,) = (suite / "cells").glob("si_merge-41-*")
    (gone / "matrix.csv").write_text("damaged")
    done = holdfast("analyse", suite)
    assert "no effects, " in done.out
    left = {path.name for path in (suite / "analysis").rglob("*") if path.is_file()}
    assert not left & {"effects.csv", "effects.json"}
    assert {"configurations.csv", "survival.pdf", "build_up.pdf"} <= left


@pytest.mark.parametrize("inside", ["suite", "suite/cells/one"])
def test_results_never_replace_what_was_read(holdfast, tmp_path: Path, inside: str) -> None:
    suite = write_suite(tmp_path / "suite", methods=("vanilla",), seeds=(41,), tasks=2)
    (cell,) = (suite / "cells").iterdir()
    cell.rename(suite / "cells" / "one")
    before = (suite / "cells.csv").read_bytes()
    refused = holdfast("analyse", suite, "--out", tmp_path / inside)
    assert (refused.status, refused.err.count("\n")) == (2, 1) and "another --out" in refused.err
    assert (suite / "cells.csv").read_bytes() == before


def test_beside_the_paper(holdfast, tmp_path: Path) -> None:
    write_suite(tmp_path / "suite", methods=FACTORIAL, seeds=SEEDS, tasks=6)
    done = holdfast("compare", tmp_path / "suite", "--with", "paper", "--out", tmp_path / "beside")
    assert done.status == 0, done.err
    assert "note: symbol_qa: final retention after 6 tasks, the paper's after 100" in done.out
    beside = pd.read_csv(tmp_path / "beside" / "compared_compositions.csv")
    paper = beside.set_index("method")["final_paper"]
    assert paper["sd_replay_merge"] == pytest.approx(0.232)
    assert len(pd.read_csv(tmp_path / "beside" / "compared_effects.csv")) == 15
    metrics = pd.read_csv(tmp_path / "beside" / "compared_metrics.csv")
    assert len(metrics) == 16 * 4
    lives = pd.read_csv(tmp_path / "beside" / "compared_half_lives.csv").set_index("role")
    assert lives["half_life_paper"]["strongest composition"] == 19
    assert "half lives" in done.out


@pytest.mark.parametrize("verb", ["analyse", "report", "compare"])
def test_a_place_without_results_is_one_line(holdfast, tmp_path: Path, verb: str) -> None:
    refused = holdfast(verb, tmp_path / "nothing")
    assert refused.status == 2
    assert refused.err.startswith("holdfast: ")
    assert refused.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("verb", ["analyse", "report"])
def test_several_places_need_one_for_the_results(holdfast, tmp_path: Path, verb: str) -> None:
    for name in ("one", "other"):
        write_suite(tmp_path / name, methods=("vanilla",), seeds=(41,), tasks=2)
    refused = holdfast(verb, tmp_path / "one", tmp_path / "other")
    assert refused.status == 2
    assert "--out" in refused.err


def test_the_papers_size_is_analysed_and_reported_in_half_a_minute_and_a_gigabyte(
    tmp_path: Path,
) -> None:
    write_suite(tmp_path / "suite", methods=PAPER, seeds=SEEDS, tasks=100)
    seconds, memory = 0.0, 0
    for verb in ("analyse", "report"):
        command = [sys.executable, "-c", MEASURED, verb, tmp_path / "suite"]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        used, peak = done.stderr.split()[-2:]
        # Of processors, not of the clock: other tests run beside this one.
        seconds, memory = seconds + float(used), max(memory, int(peak))
    assert seconds < 30
    assert memory < 1024**2  # kB
    assert (tmp_path / "suite" / "report.html").stat().st_size < 6e6
