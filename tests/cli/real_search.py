"""A small search by the command line, in processes that can be killed, and undisturbed."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from unittest.mock import patch

import yaml

from tests.forked import Forked
from tests.studies.inline import Inline

TABLES = ("trace.csv", "trace.json", "leaderboard.csv", "leaderboard.json")


def write_recipe(path: Path, backbone: Path, horizons: tuple[int, int]) -> Path:
    """Four candidates, of which two go on to the second horizon."""
    recipe = {
        "base": "demo",
        "set": {
            "backbone.name": str(backbone),
            "stream.tasks": horizons[1],
            "stream.items_per_task": 4,
            "optim.epochs": 2,
            "lora.rank": 2,
            "evaluation.max_new_tokens": 16,
        },
        "space": {"weight": ["none", "si"], "allocation": ["shared", "merge"]},
        "schedule": {"horizons": list(horizons), "survivors": ["half"]},
        "seeds": [1],
    }
    path.write_text(yaml.safe_dump(recipe))
    return path


def undisturbed(recipe: Path, out: Path) -> None:
    """The search in this process, one cell after the other."""
    from holdfast.cli.main import app

    arguments = ["search", str(recipe), "--out", str(out)]
    with patch("holdfast.cli.study.executor", lambda *_: Inline()):
        assert app(arguments, standalone_mode=False) is None


def begun(
    recipe: Path, out: Path, *options: str, environment: Mapping[str, str] | None = None
) -> Forked:
    """The search in a process of its own; it says little enough to standard error for a pipe."""
    arguments = ["search", recipe, "--out", out, *options]
    return Forked(arguments, stderr="pipe", environment={**os.environ, **(environment or {})})


def await_tasks(out: Path, process: Forked, tasks: int) -> None:
    """Wait until the cells of a study have so many tasks in their logs together."""
    deadline = time.monotonic() + 300  # starting Ray and workers takes what the machine has left
    while sum(len(log.read_bytes().splitlines()) for log in out.rglob("log.jsonl")) < tasks:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def finish(process: Forked) -> str:
    """What it wrote to standard error; it must succeed."""
    _, error = process.communicate(timeout=240)
    assert process.poll() == 0, error
    return error


def assert_same_bytes(one: Path, other: Path) -> None:
    for name in TABLES:
        assert (one / name).read_bytes() == (other / name).read_bytes()
    matrices = sorted(path.relative_to(one) for path in one.rglob("matrix.csv"))
    assert len(matrices) == 4
    for path in matrices:
        assert (one / path).read_bytes() == (other / path).read_bytes()
