"""State sizes: the paper's formulas with the shapes of a real model's files."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from experiments.paper.analysis.state_size import Shapes, formula, state_size
from holdfast.analysis.study import read_study
from tests.analysis.synthetic import ADAPTER_BYTES, PAPER, write_suite

SHAPES = Shapes(adapter=100, dense=1000, inputs=7)


@pytest.mark.parametrize(
    ("method", "text", "scalars"),
    [
        ("vanilla", "P_r", 100),
        ("sd_replay", "P_r", 100),
        ("si", "P_r + 2 P_r (si)", 300),
        ("online_ewc", "P_r + 2 P_r (online_ewc)", 300),
        ("si_online_ewc", "P_r + 2 P_r (si) + 2 P_r (online_ewc)", 500),
        ("si_sd_replay_merge", "W + P_r + 2 P_r (si)", 1300),
        ("replay_olora", "P_r + t P_r", 2100),
        ("si_osrm", "W + P_r + t Σ d_in + 2 P_r (si)", 1300 + 140),
    ],
)
def test_the_formulas_after_20_tasks(method: str, text: str, scalars: int) -> None:
    assert formula(method, 20, SHAPES) == (text, scalars)


def test_only_olora_and_osrm_grow_with_the_tasks(tmp_path: Path) -> None:
    table = state_size(read_study(write_suite(tmp_path, PAPER, [41])).cells)
    growing = set(table.loc[table["growth"] == "linear in tasks", "method"])
    assert growing == {method for method in PAPER if "olora" in method or "osrm" in method}
    for method in PAPER:
        grows = formula(method, 9, SHAPES)[1] > formula(method, 8, SHAPES)[1]
        assert grows == (method in growing), method


def write_factors(cell: Path, rank: int = 2) -> None:
    """One task's factors of two layers, 8 -> 6 and 6 -> 10."""
    layers = {"up": (8, 6), "down": (6, 10)}
    tensors = {
        f"model.{name}.{factor}": np.zeros(shape, np.float32)
        for name, (inputs, outputs) in layers.items()
        for factor, shape in (("A", (rank, inputs)), ("B", (outputs, rank)))
    }
    (cell / "factors").mkdir()
    save_file(tensors, cell / "factors/task-0010.safetensors")


def test_sizes_come_from_the_shapes_of_the_factors(tmp_path: Path) -> None:
    suite = write_suite(tmp_path, ["vanilla", "merge", "osrm"], [41], tasks=10)
    write_factors(next((suite / "cells").glob("merge-*")))
    table = state_size(read_study(suite).cells).set_index("method")
    adapter, dense, inputs = 2 * (8 + 6) + 2 * (6 + 10), 8 * 6 + 6 * 10, 8 + 6
    assert set(table["source"]) == {"factors"}
    assert table.loc["vanilla", "formula_bytes"] == 4 * adapter
    assert table.loc["merge", "formula_bytes"] == 4 * (dense + adapter)
    assert table.loc["osrm", "formula_bytes"] == 4 * (dense + adapter + 10 * inputs)
    assert table.loc["vanilla", "measured_bytes"] == ADAPTER_BYTES
    assert table.loc["osrm", "measured_bytes"] == 10 * ADAPTER_BYTES


def test_without_files_vanilla_tells_the_adapter_and_nothing_the_rest(tmp_path: Path) -> None:
    study = read_study(write_suite(tmp_path, ["vanilla", "si", "merge"], [41]))
    table = state_size(study.cells).set_index("method")
    assert set(table["source"]) == {"vanilla"}
    assert table.loc["si", "formula_bytes"] == 3 * ADAPTER_BYTES
    assert math.isnan(table.loc["merge", "formula_bytes"])
    alone = state_size(study.cells[study.cells["method"] == "si"])
    assert alone["source"].item() == "unknown" and math.isnan(alone["formula_bytes"].item())


@pytest.mark.parametrize("content", [b"", b"\xff" * 64])
def test_a_damaged_file_tells_nothing(tmp_path: Path, content: bytes) -> None:
    suite = write_suite(tmp_path, ["vanilla"], [41])
    write_factors(cell := next((suite / "cells").glob("vanilla-*")))
    (cell / "factors/task-0010.safetensors").write_bytes(content)
    assert set(state_size(read_study(suite).cells)["source"]) == {"vanilla"}


def test_a_method_of_another_rank_has_the_sizes_of_its_own_files(tmp_path: Path) -> None:
    suite = write_suite(tmp_path, ["vanilla", "merge", "si"], [41], tasks=10)
    for method, rank in (("vanilla", 2), ("merge", 6)):
        write_factors(next((suite / "cells").glob(f"{method}-*")), rank)
    table = state_size(read_study(suite).cells).set_index("method")
    assert table.loc["vanilla", "formula_bytes"] == 4 * 2 * (14 + 16)
    assert table.loc["merge", "formula_bytes"] == 4 * (8 * 6 + 6 * 10 + 6 * (14 + 16))
    # Which of the two ranks a method without files has, nobody knows.
    assert table.loc["si", "source"] == "unknown" and math.isnan(table.loc["si", "formula_bytes"])
