"""`holdfast demo` on trajectories whose matrices are given; CI runs `make demo` for real."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.cli.demo import _accepted
from holdfast.core.claims import FORMAT
from holdfast.core.config import apply_overrides, sha256_of
from holdfast.recipes import recipe
from holdfast.results import RecallMatrix

TASKS = 3
ROWS = {  # of 20 items, after each task
    "vanilla": [[20], [0, 20], [0, 0, 20]],
    "si_sd_replay_merge": [[20], [19, 20], [18, 19, 20]],
    "kfac_merge": [[20], [20, 20], [19, 20, 20]],
}


def given(rows: list[list[int]]) -> RecallMatrix:
    matrix = RecallMatrix()
    for after_task, row in enumerate(rows, start=1):
        matrix = matrix.with_row(after_task, {task: (n, 20) for task, n in enumerate(row, start=1)})
    return matrix


class Given:
    """A trajectory that knows its matrix; it learns by showing more rows of it."""

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
        matrix = given(ROWS[self.method][: self.horizon])
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
    # The chat model's part runs in CI's demo, and by tests/memory/test_real_lesson.py.
    monkeypatch.setattr("holdfast.cli.demo._show_memory", lambda out: None)
    return lambda *arguments: holdfast("demo", "--out", tmp_path / "demo", *arguments)


def test_the_demo_shows_three_methods_and_its_acceptance(stubbed, monkeypatch, tmp_path):
    outcome = stubbed()
    # The lasting method keeps 59 of 60 items, the composed one 57, the naive one 20.
    assert outcome.out.splitlines()[-1] == (
        "acceptance: not met: lasting / naive final retention = 0.983 / 0.333 = 2.95x "
        "(at least 5x), composed 0.950 between them, lowest Diag = 1.000 (at least 0.95)"
    )
    assert (outcome.status, outcome.err) == (1, "")
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
    # All is on disk to its end; what is asked for is shown.
    short = stubbed("--tasks", 2)
    assert short.status == 0
    assert short.out.splitlines()[-1] == "acceptance: judged after all 3 tasks only"
    log = tmp_path / "demo" / "vanilla" / "log.jsonl"
    assert [json.loads(line)["task"] for line in log.read_text().splitlines()] == [1, 2, 3]


FADING = [[0] * task + [20] for task in range(6)]  # a sixth is kept
LOSING = [*([20] * task for task in range(1, 6)), [19] + [20] * 5]
LASTING = [[20] * task for task in range(1, 7)]


@pytest.mark.parametrize(
    ("naive", "composed", "lasting", "met"),
    [
        (FADING, LOSING, LASTING, True),
        (FADING, LASTING, LOSING, False),  # the composed one before the lasting one
        (FADING[:3], LOSING[:3], LASTING[:3], False),  # three times as much is not five times
        ([*FADING[:5], [0] * 6], LOSING, LASTING, False),  # a task not learned
    ],
)
def test_what_is_accepted(naive, composed, lasting, met):
    assert _accepted(given(naive), given(composed), given(lasting)) is met
