"""`holdfast shares` on a tiny run, and on what is none."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import refused


def test_a_table_of_shares_and_the_numbers_themselves(holdfast, settings, tmp_path):
    run = tmp_path / "run"
    refused(holdfast("shares", tmp_path), "config.json", "no such file")
    few = ("sampling.general=3", "optim.cooldown=1", "optim.max_steps=6", "--tasks", 1)
    learned = holdfast("run", "lasting", *settings, *few, "--out", run)
    assert learned.status == 0, learned.err
    table = holdfast("shares", run, "--items", 2)
    numbers = holdfast("shares", run, "--json", "--items", 2)
    assert table.status == numbers.status == 0, table.err + numbers.err
    first, columns, *lines = table.out.splitlines()
    assert first == "tau^2 KL per token of what task 2 changes, and its shares"
    assert columns.split() == ["answers", "text", "both"]
    rows = json.loads(numbers.out)
    names = [line.rsplit(None, 3)[0].strip() for line in lines[:3]]
    assert names == ["the change itself", "to second order", "positions apart"]
    assert lines[-1].startswith("what kfac holds") and rows[-1]["what"] == "what kfac holds"
    assert rows[0].keys() == {"what", "answers", "text", "both"}
    ratio = float(lines[1].split()[-1])
    assert ratio == pytest.approx(rows[1]["both"] / rows[0]["both"], abs=0.005)
