"""`holdfast analyse` and `report`, on studies that took no model."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from tests.analysis.synthetic import (
    PAPER,
    SEEDS,
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


def test_analysed_twice_the_results_are_the_same_bytes(holdfast, tmp_path: Path) -> None:
    write_suite(tmp_path / "suite", methods=("vanilla", "replay"), seeds=SEEDS, tasks=4)
    found = []
    for _ in range(2):
        assert holdfast("analyse", tmp_path / "suite").status == 0
        place = tmp_path / "suite" / "analysis"
        files = [path for path in sorted(place.rglob("*")) if path.is_file()]
        found.append({path.name: path.read_bytes() for path in files})
    assert found[0] == found[1]


@pytest.mark.parametrize("verb", ["analyse", "report"])
def test_a_run_that_is_there_twice_stops_no_command(holdfast, tmp_path: Path, verb: str) -> None:
    suite = write_suite(tmp_path / "suite", (*FEW, "other"), SEEDS, tasks=4)
    write_trajectory(tmp_path / "again", "other", SEEDS[0], tasks=4)
    done = holdfast(verb, suite, tmp_path / "again", "--out", tmp_path / "out")
    assert done.status == 0, done.err
    if verb == "analyse":
        (line,) = [line for line in done.out.splitlines() if "other with seed 41 is there" in line]
        assert line.startswith("no configurations, ") and "figure matrices" in line


@pytest.mark.parametrize("verb", ["analyse", "report"])
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


@pytest.mark.parametrize("inside", ["suite", "suite/cells/one"])
def test_results_never_replace_what_was_read(holdfast, tmp_path: Path, inside: str) -> None:
    suite = write_suite(tmp_path / "suite", methods=("vanilla",), seeds=(41,), tasks=2)
    (cell,) = (suite / "cells").iterdir()
    cell.rename(suite / "cells" / "one")
    before = (suite / "cells.csv").read_bytes()
    refused = holdfast("analyse", suite, "--out", tmp_path / inside)
    assert (refused.status, refused.err.count("\n")) == (2, 1) and "another --out" in refused.err
    assert (suite / "cells.csv").read_bytes() == before


def test_only_what_an_earlier_call_wrote_is_overwritten(holdfast, tmp_path: Path) -> None:
    suite = write_suite(tmp_path / "suite", methods=("vanilla", "replay"), seeds=(41,), tasks=2)
    out = tmp_path / "mine"
    out.mkdir()
    (out / "cells.csv").write_text("mine")
    (out / "search_transfer.json").write_text("mine too")  # a table that is not made here
    arguments = ("analyse", suite, "--out", out, "--no-figures")
    refused = holdfast(*arguments)
    assert (refused.status, refused.err.count("\n")) == (2, 1), refused.err
    assert f"{out / 'cells.csv'}: would be overwritten, and this command did not" in refused.err
    assert {path.name: path.read_text() for path in out.iterdir()} == {
        "cells.csv": "mine",
        "search_transfer.json": "mine too",
    }
    (out / "cells.csv").rename(out / "cells of mine.csv")
    assert holdfast(*arguments).status == 0
    assert holdfast(*arguments).status == 0  # over its own
    assert (out / "search_transfer.json").read_text() == "mine too"
    listed = json.loads((out / "written.json").read_text())
    there = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    assert {*listed} == there - {"written.json", "search_transfer.json", "cells of mine.csv"}


def test_no_result_goes_behind_a_link(holdfast, tmp_path: Path) -> None:
    suite = write_suite(tmp_path / "suite", methods=("vanilla", "replay"), seeds=(41,), tasks=2)
    (tmp_path / "elsewhere").mkdir()
    (suite / "analysis").mkdir()
    (suite / "analysis" / "figures").symlink_to(tmp_path / "elsewhere")
    refused = holdfast("analyse", suite)
    assert (refused.status, refused.err.count("\n")) == (2, 1), refused.err
    assert "figures: is a link to" in refused.err
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize("verb", ["analyse", "report"])
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


def test_compare_says_where_it_is(holdfast, tmp_path: Path) -> None:
    refused = holdfast("compare", tmp_path, "--with", "paper", "--out", tmp_path / "x")
    assert (refused.status, refused.out, refused.err.count("\n")) == (2, "", 1)
    assert "run: python -m experiments.paper compare ..." in refused.err
    assert "compare" not in holdfast("--help").out
