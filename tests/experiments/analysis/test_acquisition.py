"""The acquisition gate names the seeds that failed to learn."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from experiments.paper.analysis.acquisition import acquisition
from holdfast.analysis.study import read_study
from holdfast.core.errors import HoldfastError
from tests.analysis.synthetic import counts, write_trajectory
from tests.experiments.analysis.published import published_runs


def write(tmp_path: Path, method: str, *learned: int, tasks: int = 5) -> None:
    """A trajectory a seed, which answers so many of 100 right after each task."""
    for seed, right in enumerate(learned, start=41):
        correct = counts(method, seed, tasks, 100)
        np.fill_diagonal(correct, right)
        write_trajectory(tmp_path / f"{method}-{seed}", method, seed, tasks, 100, correct=correct)


def test_a_method_of_which_a_seed_collapses(tmp_path: Path) -> None:
    write(tmp_path, "si_sd_merge", 99, 86, 100)
    write(tmp_path, "online_ewc", 90, 95, 70)
    write(tmp_path, "vanilla", 96, 97, 100)
    ewc, si = acquisition(read_study(tmp_path).cells).to_dict("records")
    assert (ewc["method"], ewc["below"], ewc["seeds"]) == ("online_ewc", "41, 42, 43", 3)
    assert (si["method"], si["below"], si["lowest"]) == ("si_sd_merge", "42", 0.86)
    assert si["diag"] == pytest.approx(0.95)
    # (4, 9, 5) around 95: n - 1.
    assert si["diag_sd"] == pytest.approx(math.sqrt((16 + 81 + 25) / 2) / 100)


def test_the_gate_may_be_moved(tmp_path: Path) -> None:
    write(tmp_path, "vanilla", 96, 97, 100)
    cells = read_study(tmp_path).cells
    assert acquisition(cells).empty  # at the gate is not below it
    assert list(acquisition(cells, gate=0.98)["below"]) == ["41, 42"]


def test_a_diag_that_is_not_defined_neither_passes_nor_fails(tmp_path: Path) -> None:
    write(tmp_path, "merge", 100, 50)
    cells = read_study(tmp_path).cells
    cells.loc[cells["seed"] == 41, "diag"] = math.nan
    (row,) = acquisition(cells).to_dict("records")
    assert row["below"] == "42" and math.isnan(row["diag"])
    # Nobody knows that all pass.
    with pytest.raises(HoldfastError, match="Diag of merge with seed 41 is not defined"):
        acquisition(cells[cells["seed"] == 41])
    assert acquisition(cells.iloc[:0]).empty


def test_the_published_failures_and_one_that_the_paper_leaves_out() -> None:
    failing = {
        dataset: {
            row["method"]
            for row in acquisition(published_runs(dataset)).to_dict("records")
            if row["diag"] < 0.96
        }
        for dataset in ("symbol_qa", "llm_qa", "real_qa")
    }
    # app:res-failures says that every cell but two holds Diag between 96 and 100. Its own table
    # of LLM-QA has two more: online_ewc with 89.2 and si with 95.3.
    assert failing == {
        "symbol_qa": {"si_sd_merge", "online_ewc"},
        "llm_qa": {"online_ewc", "si"},
        "real_qa": set(),
    }
