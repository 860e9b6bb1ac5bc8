"""Killed at random times, called again: every result is that of work that nobody disturbed."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest

from tests.soak.jobs import Job, jobs, results, work
from tests.trajectory.children import Child, begin, finish

KILLS = int(os.environ.get("HOLDFAST_SOAK", "1"))  # of each job
NAMES = [
    "si_online_ewc_kfac_sd_replay_merge", "si_replay_olora", "peft", "llm-qa",
]  # fmt: skip
if KILLS > 1:  # the tests of the rooms have kills of these for CI
    NAMES += ["sd_osrm", "vanilla", "hf", "suite", "memory"]


def start(job: Job, place: Path) -> Child:
    return begin(work, (job.at(place), job.once, str(place)), instant=None, hold=False)


def commits(place: Path) -> int:
    """How many trajectories below a directory have committed a task."""
    return sum(1 for _ in place.rglob("commit.json"))


@pytest.fixture(scope="module", autouse=True)
def imported() -> None:
    """The first child of all waits for imports, which a job's usual time must not count."""
    assert finish(begin(work, ([], "", ""), instant=None, hold=False)) == (0, "done")


@pytest.mark.parametrize("name", NAMES)
def test_killed_at_random_times(name: str, backbone_directory: Path, tmp_path: Path) -> None:
    (job,) = (job for job in jobs(tmp_path / "files", backbone_directory) if job.name == name)
    whole = tmp_path / "whole" / name  # a memory is called after its directory
    begun = time.perf_counter()
    assert finish(start(job, whole)) == (0, "done")
    usual = time.perf_counter() - begun
    expected = results(whole)
    assert expected
    draw, deaths = random.Random(name), 0
    for number in range(KILLS):
        place, committed = tmp_path / str(number) / name, 0
        for _ in range(1 + (draw.random() < 0.5)):  # half of them twice
            child = start(job, place)
            time.sleep(draw.uniform(0, 1) * usual)
            child[0].kill()
            deaths += finish(child)[0] == -signal.SIGKILL
            assert commits(place) >= committed
            committed = commits(place)
        assert finish(start(job, place)) == (0, "done")
        assert results(place) == expected
    print(f"soak: {name}: {deaths} kills, {usual:.1f} s undisturbed")  # noqa: T201
