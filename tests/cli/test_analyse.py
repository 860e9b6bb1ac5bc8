"""`holdfast analyse` and `report`, on studies that took no model."""

from __future__ import annotations

import csv
import json
import math
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from holdfast.analysis import tables
from holdfast.analysis.tables import Table
from tests.analysis.synthetic import PAPER, SEEDS, write_suite, write_trajectory
from tests.cli.conftest import refused

MEASURED = """
import contextlib, pathlib, sys, time
from holdfast.cli.main import app
for verb in ("analyse", "report"):
    with contextlib.suppress(SystemExit):
        app([verb, sys.argv[1]])
status = pathlib.Path("/proc/self/status").read_text()
print(time.process_time(), status.partition("VmHWM:")[2].split()[0], file=sys.stderr)
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return write_suite(tmp_path / "suite", ("vanilla", "replay"), seeds=(41,), tasks=2)


def test_analysed_twice_the_results_are_the_same_bytes(holdfast, small: Path) -> None:
    runs = []
    for _ in range(2):
        assert holdfast("analyse", small).status == 0
        files = [path for path in sorted((small / "analysis").rglob("*")) if path.is_file()]
        runs.append({path.name: path.read_bytes() for path in files})
    assert runs[0] == runs[1]


def test_both_files_of_a_table_have_the_same_numbers(
    holdfast, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = {
        "p": [3.1728127815e-14, 1 / 3, math.nan],
        "f": [161.0, math.inf, math.nan],
        "horizon": pd.array([1, 2, None], dtype="Int64"),
        "noise": [True, False, True],
    }
    made = pd.DataFrame({"dataset": "symbol_qa", "method": "a|ü, b", **numbers})
    monkeypatch.setattr(tables, "TABLES", (Table("means", lambda _: made),))
    assert holdfast("analyse", small, "--no-figures").status == 0
    rows = json.loads((small / "analysis" / "means.json").read_text())
    assert [list(row.values()) for row in rows] == [
        ["symbol_qa", "a|ü, b", 3.1728127815e-14, 161.0, 1, True],
        ["symbol_qa", "a|ü, b", 1 / 3, None, 2, False],
        ["symbol_qa", "a|ü, b", None, None, None, True],
    ]
    assert list(rows[0]) == list(made)
    with (small / "analysis" / "means.csv").open() as file:
        column = [line["p"] for line in csv.DictReader(file)]
    assert [float(p) if p else None for p in column] == [row["p"] for row in rows]


def test_a_run_that_is_there_twice_stops_nothing(holdfast, small: Path, tmp_path: Path) -> None:
    write_trajectory(tmp_path / "again", "replay", 41, tasks=2)
    done = holdfast("analyse", small, tmp_path / "again", "--out", tmp_path / "out")
    assert done.status == 0, done.err
    (line,) = [line for line in done.out.splitlines() if "replay with seed 41 is there" in line]
    assert line.startswith("no configurations, ") and "figure matrices" in line


def test_only_what_an_earlier_call_wrote_is_overwritten(holdfast, small: Path, tmp_path) -> None:
    before = (small / "cells.csv").read_bytes()
    for place in (small, next((small / "cells").iterdir())):  # what was read
        refused(holdfast("analyse", small, "--out", place), "another --out")
    assert (small / "cells.csv").read_bytes() == before
    out = tmp_path / "mine"
    out.mkdir()
    (out / "cells.csv").write_text("mine")
    (out / "search_transfer.json").write_text("mine too")  # a table that is not made here
    arguments = ("analyse", small, "--out", out, "--no-figures")
    words = f"{out / 'cells.csv'}: would be overwritten, and this command did not"
    refused(holdfast(*arguments), words)
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


def test_no_result_goes_behind_a_link(holdfast, small: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (small / "analysis").mkdir()
    (small / "analysis" / "figures").symlink_to(tmp_path / "elsewhere")
    refused(holdfast("analyse", small), "figures: is a link to")
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize("verb", ["analyse", "report"])
def test_places_that_are_refused(holdfast, small: Path, tmp_path: Path, verb: str) -> None:
    refused(holdfast(verb, tmp_path / "nothing"))
    refused(holdfast(verb, small, tmp_path / "other"), "--out")
    assert [path.name for path in tmp_path.iterdir()] == ["suite"]


def test_the_papers_size_is_analysed_and_reported_in_half_a_minute_and_a_gigabyte(
    tmp_path: Path,
) -> None:
    write_suite(tmp_path / "suite", methods=PAPER, seeds=SEEDS, tasks=100)
    command = [sys.executable, "-c", MEASURED, tmp_path / "suite"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    seconds, peak = done.stderr.split()[-2:]
    assert float(seconds) < 30  # of processors, not of the clock: other tests run beside this one
    assert int(peak) < 1024**2  # kB
    assert (tmp_path / "suite" / "analysis" / "configurations.csv").exists()
    assert (tmp_path / "suite" / "report.html").stat().st_size < 6e6
