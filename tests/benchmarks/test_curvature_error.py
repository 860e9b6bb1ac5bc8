"""What the anchor sees of a change, on a small trajectory."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.curvature_error import measure
from holdfast.core.errors import HoldfastError
from holdfast.learning.config import RunConfig
from holdfast.learning.trajectory import Trajectory
from holdfast.recipes import recipe

SMALL = ["stream.tasks=2", "stream.items_per_task=6", "optim.epochs=3", "sampling.general=4"]


def learned(directory: Path, *overrides: str) -> Path:
    config = RunConfig.of(recipe("lasting"), [*SMALL, "optim.max_steps=6", *overrides])
    Trajectory(config, directory).advance()
    return directory


def test_the_rows_neglect_more_and_more(tmp_path: Path) -> None:
    directory = learned(tmp_path / "run")
    files = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    (table,) = measure(directory).tables
    values = {row[0]: float(row[1]) for row in table.rows}
    assert len(values) == len(table.rows) == 9
    assert all(value > 0 for value in values.values())
    # A short task hardly leaves second order; the form of exact S and G is below the whole.
    assert values["to second order"] == pytest.approx(values["the change itself"], rel=0.3)
    assert files == {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_a_run_that_holds_nothing(tmp_path: Path) -> None:
    directory = learned(tmp_path / "run", "kfac.source=written", "sampling.samples=4")
    with pytest.raises(HoldfastError, match=r"nothing is held here; give a trajectory with kfac"):
        measure(directory)
