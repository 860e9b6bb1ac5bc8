"""`holdfast demo` on trajectories whose matrices are given, and once on a real tiny model."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from holdfast.core.claims import FORMAT
from holdfast.core.config import apply_overrides, sha256_of
from holdfast.recipes import recipe
from holdfast.results import RecallMatrix

TASKS = 3
ROWS = {  # of 20 items, after each task
    "vanilla": [[20], [4, 20], [1, 2, 20]],
    "si_sd_replay_merge": [[20], [19, 20], [18, 19, 20]],
    "kfac_merge": [[20], [20, 20], [19, 20, 20]],
}


def given(rows: list[list[int]]) -> RecallMatrix:
    matrix = RecallMatrix()
    for after_task, row in enumerate(rows, start=1):
        matrix = matrix.with_row(after_task, {task: (n, 20) for task, n in enumerate(row, start=1)})
    return matrix


@pytest.fixture(autouse=True)
def no_chat_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """The chat model's part runs in CI's demo, and by tests/memory/test_real_lesson.py."""
    monkeypatch.setattr("holdfast.cli.demo_memory.show_memory", lambda out: None)


class Given:
    """A trajectory that knows its matrix; it learns by showing more rows of it."""

    rows: dict[str, list[list[int]]] = ROWS

    def __init__(self, config: object, directory: Path) -> None:
        self.directory = directory
        self.method = directory.name
        self.stream = type("Stream", (), {"tasks": range(TASKS)})
        log = directory / "log.jsonl"
        self.horizon = len(log.read_text().splitlines()) if log.exists() else 0

    def advance(self, horizon: int | None, progress: object) -> RecallMatrix:
        self.directory.mkdir(parents=True, exist_ok=True)
        recorded = {
            "format": FORMAT,
            "config": {"method": self.method, "seed": 41, "stream": {"name": "symbol_qa"}},
            "stream": {"name": "symbol_qa", "tasks": TASKS, "fingerprint": "f"},
            "identity": sha256_of({}),
            "numbers": {},
            "backbone": {"name": "embedded", "fingerprint": "f"},
            "versions": {},
        }
        (self.directory / "config.json").write_text(json.dumps(recorded))
        with (self.directory / "log.jsonl").open("a") as log:
            for task in range(self.horizon + 1, (horizon or TASKS) + 1):
                event = {"event": "task", "task": task, "seconds": {"training": 2, "commit": 1}}
                log.write(json.dumps(event) + "\n")
                self.horizon = task
        matrix = given(self.rows[self.method][: self.horizon])
        matrix.save(self.directory / "matrix.csv")
        return matrix


@pytest.fixture
def stubbed(monkeypatch, holdfast, tmp_path):
    recipes = {
        "demo": apply_overrides(recipe("demo"), ["method=si_sd_replay_merge"]),
        "lasting": recipe("lasting"),
    }
    monkeypatch.setattr("holdfast.cli.demo.recipe", recipes.__getitem__)
    monkeypatch.setattr("holdfast.learning.trajectory.Trajectory", Given)
    return lambda *arguments: holdfast("demo", "--out", tmp_path / "demo", *arguments)


def test_the_demo_shows_three_methods_and_the_acceptance_it_met(stubbed, monkeypatch, tmp_path):
    monkeypatch.setattr(Given, "rows", ROWS | {"vanilla": [[20], [0, 20], [0, 0, 20]]})
    monkeypatch.setattr("holdfast.cli.demo.LEAST_RATIO", 2.9)
    outcome = stubbed()
    assert outcome.status == 0, outcome.err
    # The lasting method keeps 59 of 60 items, the composed one 57, the naive one 20.
    assert outcome.out.splitlines()[-1] == (
        "acceptance: met: lasting / naive final retention = 0.983 / 0.333 = 2.95x "
        "(at least 2.9x), composed 0.950 between them, lowest Diag = 1.000 (at least 0.95)"
    )
    page = tmp_path / "demo" / "report.html"
    assert f"report: {page}" in outcome.out
    assert "si_sd_replay_merge" in page.read_text()
    table = {
        words[0]: words[1:]
        for line in outcome.out.splitlines()
        if (words := line.split()) and words[0] in ROWS and not line.endswith("per cent")
    }
    assert table == {
        "vanilla": ["3", "0.333", "1.000", "1.000", "-", "-", "1", "9"],
        "si_sd_replay_merge": ["3", "0.950", "1.000", "0.075", "-", "-", ">2", "9"],
        "kfac_merge": ["3", "0.983", "1.000", "0.025", "-", "-", ">2", "9"],
    }
    assert "           3  90  95 100" in outcome.out
    for kind in ("png", "pdf"):
        assert (tmp_path / "demo" / f"demo.{kind}").stat().st_size > 1000


@pytest.mark.parametrize(
    "rows",
    [
        ROWS,  # (19 + 20 + 20) / 23 = 2.6 times as much is not five times
        {
            "vanilla": [[20], [0, 20], [0, 0, 0]],
            "si_sd_replay_merge": [[20], [20, 20], [10, 20, 20]],
            "kfac_merge": [[20], [20, 20], [20, 20, 20]],
        },
        {
            "vanilla": [[20], [1, 20], [0, 0, 10]],
            "si_sd_replay_merge": [[20], [20, 20], [20, 20, 20]],
            "kfac_merge": [[20], [20, 20], [19, 20, 20]],
        },
    ],
    ids=["too little kept", "a task not learned", "composed before lasting"],
)
def test_a_demo_that_misses_its_acceptance_says_so_and_exits_1(rows, stubbed, monkeypatch):
    monkeypatch.setattr(Given, "rows", rows)
    outcome = stubbed()
    assert outcome.status == 1
    assert outcome.out.splitlines()[-1].startswith("acceptance: not met: ")
    assert outcome.err == ""


def test_a_shorter_demo_is_not_judged_and_a_later_one_continues(stubbed, tmp_path):
    short = stubbed("--tasks", 2)
    assert short.status == 0
    assert short.out.splitlines()[-1] == "acceptance: judged after all 3 tasks only"
    stubbed()
    log = tmp_path / "demo" / "vanilla" / "log.jsonl"
    assert [json.loads(line)["task"] for line in log.read_text().splitlines()] == [1, 2, 3]
    # Both are on disk to their ends; what was asked for is shown, as it was shown before.
    again = stubbed("--tasks", 2)
    assert again.out == short.out
    assert len(log.read_text().splitlines()) == 3


def test_the_demo_learns_for_real(holdfast, settings, monkeypatch, tmp_path):
    composed = apply_overrides(recipe("demo"), settings)
    lasting = apply_overrides(recipe("lasting"), settings)
    recipes = {"demo": composed, "lasting": {**lasting, "method": "kfac_merge"}}
    monkeypatch.setattr("holdfast.cli.demo.recipe", recipes.__getitem__)
    monkeypatch.setattr("holdfast.cli.demo.STREAM", ())
    monkeypatch.setattr("holdfast.cli.demo.REPLAY", ())
    place = tmp_path / "demo"
    first = holdfast("demo", "--out", place)
    assert first.status == 1, first.err  # a random model learns nothing in an epoch
    assert "acceptance: not met" in first.out
    for tag in ("vanilla", composed["method"], "kfac_merge"):
        matrix = RecallMatrix.load(place / tag / "matrix.csv")
        assert matrix.observed_rows == (0, 1, 2, 3)
        assert re.search(rf"^{tag}: task 3 of 3 in .*recall of all so far", first.err, re.MULTILINE)
    again = holdfast("demo", "--out", place)
    assert (again.status, again.out, again.err) == (1, first.out, "")
