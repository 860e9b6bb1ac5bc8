"""`holdfast shares` on a tiny run, and on what is none."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import refused


def test_a_table_of_shares_and_the_numbers_themselves(holdfast, settings, tmp_path):
    run = tmp_path / "run"
    learned = holdfast(
        "run",
        "lasting",
        *settings,
        "sampling.general=3",
        "optim.cooldown=1",
        "optim.max_steps=6",
        "--tasks",
        1,
        "--out",
        run,
    )
    assert learned.status == 0, learned.err
    table = holdfast("shares", run, "--items", 2)
    numbers = holdfast("shares", run, "--json", "--items", 2)
    assert table.status == numbers.status == 0, table.err + numbers.err
    first, *lines = table.out.splitlines()
    assert first == "tau^2 KL per token of what task 2 changes, and its shares"
    assert lines[0].split() == ["answers", "text", "both"]
    assert [line.rsplit(None, 3)[0].strip() for line in lines[1:4]] == [
        "the change itself", "to second order", "positions apart",
    ]  # fmt: skip
    assert lines[-1].startswith("what kfac holds") and len(lines[-1].split()) == 4
    rows = json.loads(numbers.out)
    assert [row["what"] for row in rows][-1] == "what kfac holds"
    assert rows[0].keys() == {"what", "answers", "text", "both"}
    ratio = float(lines[2].split()[-1])
    assert ratio == pytest.approx(rows[1]["both"] / rows[0]["both"], abs=0.005)


def test_what_is_no_run(holdfast, tmp_path):
    refused(holdfast("shares", tmp_path), "config.json", "no such file")
