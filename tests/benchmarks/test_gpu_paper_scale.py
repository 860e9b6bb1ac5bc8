"""The GPU script at its smallest, on the CPU: what it checks and what it writes, no time."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from benchmarks import gpu_paper_scale as script
from benchmarks.paper_scale.checks import CheckError
from benchmarks.paper_scale.record import Record, paper_rows


@pytest.fixture(autouse=True)
def _quiet_as_before() -> Any:
    """The script silences a library for the rest of its process."""
    from transformers.utils import logging

    before = logging.get_verbosity()
    yield
    logging.set_verbosity(before)


def test_one_call_checks_measures_and_writes_everything(tmp_path, capsys):
    assert script.main(["--tiny", "--out", str(tmp_path)]) == 0
    written = json.loads((tmp_path / "gpu_paper_scale.json").read_text())
    assert [row["name"] for row in written["rows"]] == [row.name for row in paper_rows()]
    for row in written["rows"]:
        # Nobody counts the memory of a CPU; nothing is asked of a tiny model.
        assert row["measured"] > 0 or row["name"] == "peak memory"
        assert row["met"] is None
    assert all(outcome == "done" for _, _, outcome in written["phases"])
    said = dict(written["tables"]["Checks, before anything was timed"])
    assert len(said) == 4
    verdicts = said["recall against generation"].split()
    agreeing, right = int(verdicts[0]), int(verdicts[3])
    assert 0 < right < agreeing
    assert dict(written["tables"]["Device"])["decoder in training"] == "written out"
    table = (tmp_path / "gpu_paper_scale.md").read_text()
    assert table == capsys.readouterr().out
    assert "extrapolated" in table


def test_a_failed_check_ends_the_call_before_anything_is_timed(tmp_path, monkeypatch, capsys):
    def wrong(device):
        raise CheckError("whole tasks: losses differ by 1")

    monkeypatch.setattr(script, "checks", wrong)
    assert script.main(["--tiny", "--out", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert said == "check failed, nothing was timed: whole tasks: losses differ by 1\n"
    assert not list(tmp_path.iterdir())


def test_without_a_gpu_it_says_so(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert script.main([]) == 2
    assert "--tiny" in capsys.readouterr().err


def test_a_phase_that_runs_out_of_memory_leaves_the_others_their_turn(tmp_path):
    record = Record(tmp_path, "about", "device", asked=True)

    def too_much():
        raise torch.OutOfMemoryError("tried to allocate 99 GiB")

    assert record.phase("large", too_much) is None
    written = json.loads((tmp_path / "gpu_paper_scale.json").read_text())
    assert written["phases"][0][2] == "out of memory: tried to allocate 99 GiB"
    assert not record.failed
    assert record.phase("small", lambda: 3) == 3
    assert len(json.loads((tmp_path / "gpu_paper_scale.json").read_text())["phases"]) == 2


def test_a_task_that_does_not_fit_leaves_the_row_and_the_recipe(tmp_path, monkeypatch):
    def too_much(engine):
        raise torch.OutOfMemoryError("tried to allocate 99 GiB")

    monkeypatch.setattr(script, "checks", lambda device: [])
    monkeypatch.setattr(script.Engine, "whole_task", too_much)
    assert script.main(["--tiny", "--out", str(tmp_path)]) == 0
    written = json.loads((tmp_path / "gpu_paper_scale.json").read_text())
    measured = {row["name"]: row["measured"] for row in written["rows"]}
    assert measured["row"] > 0
    assert measured["whole task"] is None
    recipe = dict(written["tables"]["The reference recipe, extrapolated from timed parts"])
    assert set(recipe) == {"sampling", "training with its teacher", "row", "whole task"}


def test_what_is_asked_for_is_judged():
    rows = {row.name: row for row in paper_rows()}
    step, ratio = rows["training step"], rows["reference recipe over whole task"]
    assert step.met is None
    step.measured, ratio.measured = 111.0, 29.0
    assert (step.met, ratio.met) == (False, False)
    step.measured, ratio.measured = 110.0, 30.0
    assert (step.met, ratio.met) == (True, True)
    assert step.floor == pytest.approx(10_000 / 130)
