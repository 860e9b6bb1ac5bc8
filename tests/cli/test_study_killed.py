"""A search by real processes, killed for good again and again."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import yaml

from tests.studies.conftest import workers_of

COMMAND = "from holdfast.cli.main import app; app()"
KILLS = 5


def test_killed_five_times_the_search_ends_with_the_same_bytes(
    tmp_path: Path, tiny_directory: Path
) -> None:
    recipe = {
        "base": "demo",
        "set": {
            "backbone.name": str(tiny_directory),
            "stream.tasks": 4,
            "stream.items_per_task": 4,
            "optim.epochs": 2,
            "lora.rank": 2,
            "evaluation.max_new_tokens": 16,
        },
        "space": {"weight": ["none", "si", "online_ewc"], "allocation": ["shared", "merge"]},
        "schedule": {"horizons": [1, 2, 4], "survivors": ["half", 2]},
        "seeds": [1],
    }
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(recipe))

    def start(out: Path) -> subprocess.Popen[bytes]:
        arguments = ["search", tmp_path / "small.yaml", "--out", out, "--workers", 2]
        command = [sys.executable, "-c", COMMAND, *map(str, arguments)]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    whole, killed = tmp_path / "whole", tmp_path / "killed"
    finish(start(whole))
    random = Random(7)
    for number in range(KILLS):
        process, before = start(killed), committed(killed)
        # Wait for its workers, and every other time until they have learned one more task: the
        # import of torch alone is not worth killing.
        deadline = time.monotonic() + 120
        while True:
            workers = workers_of(process.pid)
            if workers and (number % 2 or committed(killed) > before):
                break
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline, "it does not learn"
            time.sleep(0.02)
        time.sleep(random.uniform(0, 6) if number % 2 else random.uniform(0, 0.3))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        wait_for_the_end_of(workers)
    assert 3 <= committed(killed) < committed(whole)  # all kills hit a search that was going on
    finish(start(killed))
    for name in ("trace.csv", "trace.json", "leaderboard.csv", "leaderboard.json"):
        assert (killed / name).read_bytes() == (whole / name).read_bytes()
    matrices = sorted(path.relative_to(whole) for path in whole.rglob("matrix.csv"))
    assert len(matrices) == 6
    for path in matrices:
        assert (killed / path).read_bytes() == (whole / path).read_bytes()


def committed(search: Path) -> int:
    """How many tasks its cells have learned and committed."""
    commits = list(search.glob("cells/*/state/commit.json"))
    return sum(json.loads(path.read_text())["completed"] for path in commits)


def finish(process: subprocess.Popen[bytes]) -> None:
    _, error = process.communicate(timeout=240)
    assert process.returncode == 0, error.decode()


def wait_for_the_end_of(workers: list[int]) -> None:
    """A worker ends by itself when its parent is gone."""
    deadline = time.monotonic() + 30
    for worker in workers:
        while time.monotonic() < deadline:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, 0)
                time.sleep(0.02)
                continue
            break
        else:
            raise AssertionError(f"worker {worker} outlived its parent")
