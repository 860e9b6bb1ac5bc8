"""A suite crosses its methods with a grid of settings."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from holdfast import Trajectory
from holdfast.analysis.study import read_study
from holdfast.analysis.tables import analyse
from holdfast.anchors import register
from holdfast.anchors.si import SynapticIntelligence
from holdfast.core import plugins
from holdfast.studies.suite import Suite, configurations
from tests.refused import line_of
from tests.studies.inline import Inline


@pytest.fixture
def base(cell):
    return cell().config.model_dump(mode="json")


def suite(base, place: Path, grid, methods=("vanilla", "si"), seeds=(1, 2)) -> Suite:
    return Suite(configurations(methods, seeds, base, [], grid), place, None, 2, swept=list(grid))


def test_what_a_method_does_not_use_is_not_crossed_with_it(base, tmp_path: Path) -> None:
    grid = {"optim.lr": [0.02, 0.03], "si.strength": [0.1, 1.0]}
    names = [cell.candidate for cell in suite(base, tmp_path, grid, seeds=(1,)).cells]
    assert names == [
        "vanilla optim.lr=0.02",
        "vanilla optim.lr=0.03",
        "si optim.lr=0.02 si.strength=0.1",
        "si optim.lr=0.02 si.strength=1.0",
        "si optim.lr=0.03 si.strength=0.1",
        "si optim.lr=0.03 si.strength=1.0",
    ]


def test_settings_of_a_plug_in_are_crossed_as_a_user_writes_them(
    base, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "_registered", {})
    register("tether", type("Tether", (SynapticIntelligence,), {}))
    grid = {"tether.strength": [0.1, 1.0]}
    swept = suite(base, tmp_path, grid, ("vanilla", "tether"), seeds=(1,))
    assert [cell.candidate for cell in swept.cells] == [
        "vanilla",
        "tether tether.strength=0.1",
        "tether tether.strength=1.0",
    ]
    other = suite(base, tmp_path, {"tether.strength": [2.0]}, ("tether",), seeds=(1,))
    assert other.settings() == swept.settings()  # another value may be added


@pytest.mark.usefixtures("quick")
def test_a_sweep_its_tables_and_one_value_more(base, tmp_path: Path) -> None:
    rates = {"optim.lr": [0.02, 0.03]}
    suite(base, tmp_path, rates, ["si"]).run(Inline())
    more = suite(base, tmp_path, {"optim.lr": [0.02, 0.01]}, ["si"])
    second = Inline()
    more.run(second)
    assert len(second.learned) == 2 * 2  # two seeds, two tasks, of 0.01 alone
    with (tmp_path / "summary.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert {(line["candidate"], line["optim.lr"], line["seeds"]) for line in lines} == {
        (f"si optim.lr={rate}", str(rate), "2") for rate in (0.01, 0.02, 0.03)
    }
    assert all(line["final_sd"] for line in lines)
    study = read_study(tmp_path)
    assert study.missing == () and (study.cells["state_bytes"] > 0).all()
    table = analyse(study).tables["configurations"]
    assert set(table["method"]) == {line["candidate"] for line in lines}
    finals = {line["candidate"]: float(line["final"]) for line in lines}
    assert dict(zip(table["method"], table["final"], strict=True)) == pytest.approx(finals)


@pytest.mark.usefixtures("quick")
def test_a_default_that_no_identity_has_is_a_value_like_others(base, tmp_path: Path) -> None:
    grid = {"optim.cooldown": [0, 1]}
    swept = suite(base, tmp_path, grid, ["vanilla"])
    swept.run(Inline())
    names = ["vanilla optim.cooldown=0", "vanilla optim.cooldown=1"]
    assert [cell.candidate for cell in swept.cells] == [name for name in names for _ in (1, 2)]
    table = analyse(read_study(tmp_path)).tables["configurations"]
    assert sorted(table["method"]) == names and set(table["seeds"]) == {2}
    for value in (0, 1):
        study = read_study(tmp_path, where={"optim.cooldown": value})
        assert study.cells["path"].tolist() == [
            str(cell.directory(swept.store)) for cell in swept.cells[2 * value :][:2]
        ]
    # A table of before called the default by its method alone; the cell is there once.
    path = tmp_path / "cells.json"
    path.write_text(path.read_text().replace(names[0], "vanilla"))
    suite(base, tmp_path, grid, ["vanilla"]).run(Inline())
    rows = json.loads(path.read_text())
    assert sorted(row["candidate"] for row in rows) == [name for name in names for _ in (1, 2)]


@pytest.mark.usefixtures("quick")
def test_precisions_are_called_as_the_grid_calls_them(base, tmp_path: Path) -> None:
    grid = {"backbone.precision": ["float32", "bfloat16"]}
    swept = suite(base, tmp_path, grid, ["vanilla"], seeds=(1,))
    swept.run(Inline())
    names = {cell.candidate for cell in swept.cells}
    assert set(read_study(tmp_path).cells["method"]) == names
    assert len(read_study(tmp_path, where={"backbone.precision": "bfloat16"}).cells) == 1


@pytest.mark.usefixtures("quick")
def test_a_cell_that_failed_is_named_with_its_settings(base, tmp_path: Path) -> None:
    fails = Inline(lambda cell: "it diverged" if "0.03" in cell.candidate else None)
    suite(base, tmp_path, {"optim.lr": [0.02, 0.03]}, seeds=(1,)).run(fails)
    missing = read_study(tmp_path).missing
    assert [line for line in missing if "diverged" in line] == [
        f"symbol_qa {method} optim.lr=0.03 seed 1: not in {tmp_path / 'cells'}; it failed: "
        "it diverged"
        for method in ("vanilla", "si")
    ]


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("file", ["config.json", "state/commit.json"])
def test_a_damaged_cell_fails_alone(base, tmp_path: Path, file: str) -> None:
    first = suite(base, tmp_path, {}, seeds=(1,))
    first.run(Inline())
    damaged = next(cell for cell in first.cells if cell.candidate == "si").directory(first.store)
    (damaged / file).write_text("{}")
    second = Inline()
    more = suite(base, tmp_path, {}, seeds=(1, 3))
    more.run(second)
    assert len(second.learned) == 2 * 2  # of another seed, two methods, two tasks
    rows = json.loads((tmp_path / "cells.json").read_text())
    (error,) = [row["error"] for row in rows if row["error"]]
    assert f"or remove {damaged}, and the cell is learned anew" in error


@pytest.mark.parametrize(
    ("setting", "another"),
    [
        ("backbone.checkpointing=true", False),
        ("evaluation.items=true", False),
        ("sampling.batch=3", False),
        ("evaluation.rows=horizon", True),
        ("optim.lr=0.5", True),
    ],
)
def test_what_changes_no_result_makes_no_other_study(base, tmp_path, setting, another):
    """So a suite that does not fit goes on with less memory."""
    plain, other = (
        Suite(configurations(["replay"], [1], base, settings), tmp_path, None, 2).settings()
        for settings in ([], [setting])
    )
    assert (plain != other) == another


def test_revisions_of_a_model_are_cells_of_their_own(base, tmp_path: Path) -> None:
    cells = suite(base, tmp_path, {"backbone.revision": ["v1", "v2"]}, methods=("vanilla",)).cells
    assert {cell.config.backbone.revision for cell in cells} == {"v1", "v2"}


def test_a_setting_that_no_method_uses_is_refused(base, tmp_path: Path) -> None:
    line = line_of(suite, base, tmp_path, {"sd.strength": [1, 2]}, methods=("vanilla",))
    assert line.startswith("grid: sd.strength changes no result")


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(("rows", "horizon"), [(3, 2), ("horizon", 2), ("horizon", 1)])
def test_a_horizon_at_which_not_every_task_was_asked_fails_with_the_reason(
    base, tmp_path, rows, horizon
):
    """A run that went on asks the last task alone after each task that rows leaves out."""
    configs = configurations(["vanilla"], [1], base, [f"evaluation.rows={rows}"])
    plan = Suite(configs, tmp_path / "suite", tmp_path / "store", 3)
    (cell,) = plan.cells
    Trajectory(cell.config, cell.directory(plan.store)).advance(3)
    (whole,) = plan.run(Inline())
    (short,) = Suite(configs, tmp_path / "suite", tmp_path / "store", horizon).run(Inline())
    assert whole["error"] is None and whole["final"] is not None
    assert short["final"] is None and f"not measured after task {horizon}" in short["error"]
