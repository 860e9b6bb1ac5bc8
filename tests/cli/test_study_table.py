"""What a study shows while it runs."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from holdfast import RunConfig
from holdfast.cli.study_table import LiveTable, Tally, watching
from holdfast.studies.cell import Cell, Outcome


def cell(seed: int, horizon: int = 4) -> Cell:
    return Cell("replay[0.5]", RunConfig.of({"method": "replay", "seed": seed}), horizon)


def tell(watch: Tally) -> None:
    """Four cells of four tasks: one was there, one is at work, one has failed, one waits."""
    watch.begins(cells=4, tasks=16, missing=12)
    watch.finished(Outcome(cell(1), learned=0, seconds=0.0))
    watch.started(cell(2))
    watch.task_done(cell(2), 1)
    watch.task_done(cell(2), 2)
    watch.started(cell(3))
    watch.event(cell(3), "lost its worker")
    watch.finished(Outcome(cell(3), learned=0, seconds=1.0, error="no room"))


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), width=100, force_terminal=False)


def test_the_table_says_who_is_where_and_what_failed(console: Console) -> None:
    drawn = LiveTable("search", 16, console)
    tell(drawn)
    console.print(drawn)
    lines = [" ".join(line.split()) for line in console.file.getvalue().splitlines()]
    assert lines[0] == "search: replay[0.5], seed 3: lost its worker"
    assert "6 of 16 tasks" in lines[1]
    assert lines[2] == "2 of 4 cells done, 1 running, 1 failed"
    assert lines[3].startswith("replay[0.5], seed 2 task 2 of 4")
    assert lines[4] == "failed: replay[0.5], seed 3: no room"


def test_the_time_to_go_counts_what_was_learned_just_now() -> None:
    now = [0.0]
    drawn = LiveTable("search", 16, Console(file=io.StringIO(), width=100), clock=lambda: now[0])
    drawn.begins(cells=4, tasks=16, missing=12)
    show(drawn)
    now[0] = 10.0
    drawn.task_done(cell(2), 1)
    assert "about 1:50 min left" in show(drawn)  # eleven more, ten seconds each


def show(drawn: LiveTable) -> str:
    console = Console(file=io.StringIO(), width=100)
    console.print(drawn)
    return console.file.getvalue()


def test_cells_of_the_next_horizon_are_counted_from_zero() -> None:
    watch = Tally(16)
    tell(watch)
    watch.begins(cells=2, tasks=8, missing=8)
    assert watch.counts() == "0 of 2 cells done, 1 running, 1 failed"
    assert watch.learned == 6


def test_in_a_log_there_are_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with watching("suite", 16) as watch:
        tell(watch)
        watch.learned = 15
        watch.task_done(cell(2), 4)
    err = capsys.readouterr().err.splitlines()
    assert err == [
        "suite: replay[0.5], seed 3: lost its worker",
        "suite, tasks: 16 of 16, 2 of 4 cells done, 1 running, 1 failed",
    ]
