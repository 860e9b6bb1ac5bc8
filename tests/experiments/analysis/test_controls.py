"""Forward transfer and box emission by method, and the size of a data set."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from experiments.paper.analysis.controls import controls, datasets
from holdfast.analysis.study import read_study
from tests.analysis.synthetic import write_trajectory


def write(place: Path, method: str, seed: int, boxed: float, before: int) -> None:
    """A trajectory of three tasks; before: right answers of 20 just before a task is learned."""
    right = np.zeros((3, 3), dtype=np.int64)
    write_trajectory(place, method, seed, tasks=3, correct=right, emission=boxed)
    text = (place / "matrix.csv").read_text()
    for after in range(3):
        there = f"\n{after},{after + 1},0,20,{round(20 * boxed)},0.0\n"
        assert there in text
        text = text.replace(there, f"\n{after},{after + 1},{before},20,20,{before / 20}\n")
    (place / "matrix.csv").write_text(text)


def test_the_controls_are_means_over_seeds(tmp_path: Path) -> None:
    write(tmp_path / "a", "si", 41, 1.0, before=2)
    write(tmp_path / "b", "si", 42, 0.5, before=4)
    write(tmp_path / "c", "merge", 41, 0.25, before=1)
    study = read_study(tmp_path)
    table = controls(study).set_index("method")
    assert table["seeds"].to_dict() == {"merge": 1, "si": 2}
    for name in ("box_emission", "box_emission_diagonal"):
        assert table[name].to_dict() == pytest.approx({"merge": 0.25, "si": 0.75})
    assert table["forward_transfer"].to_dict() == pytest.approx({"merge": 0.05, "si": 0.15})
    assert table["forward_transfer_sd"]["si"] == pytest.approx(0.05 * math.sqrt(2))
    assert math.isnan(table["forward_transfer_sd"]["merge"])
    assert datasets(study).to_dict("records") == [
        {"dataset": "symbol_qa", "tasks": 3, "items": 60, "items_least": 20, "items_most": 20,
         "methods": 2, "runs": 3}
    ]  # fmt: skip
