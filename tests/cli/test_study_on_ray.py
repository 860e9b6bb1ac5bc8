"""A search on a Ray cluster: the same results as on one machine, also when a node goes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

COMMAND = "from holdfast.cli.main import app; app()"
MARK = "HOLDFAST_TEST_MARK"  # of a process and all that it starts
TABLES = ("trace.csv", "trace.json", "leaderboard.csv", "leaderboard.json")


class TwoNodes:
    """A cluster of a head and another node, one cell at a time on each."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        size = {"num_cpus": 1, "object_store_memory": 80 * 1024**2}
        self._cluster = Cluster(initialize_head=True, head_node_args=size)
        self.other = self._cluster.add_node(**size)
        self.address: str = self._cluster.address

    def lose_a_node(self) -> None:
        self._cluster.remove_node(self.other, allow_graceful=False)

    def shutdown(self) -> None:
        self._cluster.shutdown()


@pytest.fixture(scope="module")
def cluster() -> Iterator[TwoNodes]:
    nodes = TwoNodes()
    yield nodes
    nodes.shutdown()


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory, tiny_directory: Path) -> Path:
    path = tmp_path_factory.mktemp("recipe") / "small.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "base": "demo",
                "set": {
                    "backbone.name": str(tiny_directory),
                    "stream.tasks": 24,
                    "stream.items_per_task": 4,
                    "optim.epochs": 2,
                    "lora.rank": 2,
                    "evaluation.max_new_tokens": 16,
                },
                "space": {"weight": ["none", "si"], "allocation": ["shared", "merge"]},
                "schedule": {"horizons": [2, 24], "survivors": ["half"]},
                "seeds": [1],
            }
        )
    )
    return path


def search(recipe: Path, out: Path, *options: str, mark: str = "") -> subprocess.Popen[bytes]:
    arguments = ["search", str(recipe), "--out", str(out), *options]
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, MARK: mark},
    )


def finish(process: subprocess.Popen[bytes]) -> str:
    _, error = process.communicate(timeout=240)
    assert process.returncode == 0, error.decode()
    return error.decode()


def await_tasks(out: Path, process: subprocess.Popen[bytes], tasks: int) -> None:
    """Wait until the cells of a study have so many tasks in their logs together."""
    deadline = time.monotonic() + 300  # starting Ray and workers takes what the machine has left
    while sum(len(log.read_bytes().splitlines()) for log in out.rglob("log.jsonl")) < tasks:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_killed_and_robbed_of_a_node_the_search_ends_with_the_same_bytes(
    cluster: TwoNodes, recipe: Path, tmp_path: Path
) -> None:
    whole, robbed = tmp_path / "whole", tmp_path / "robbed"
    finish(search(recipe, whole, "--workers", "2"))
    on_ray = ("--executor", "ray", "--ray-address", cluster.address)
    first = search(recipe, robbed, *on_ray)
    await_tasks(robbed, first, 3)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    second = search(recipe, robbed, *on_ray)
    await_tasks(robbed, second, 12)
    cluster.lose_a_node()
    told = finish(second)
    assert "lost its worker" in told
    for name in TABLES:
        assert (robbed / name).read_bytes() == (whole / name).read_bytes()
    matrices = sorted(path.relative_to(whole) for path in whole.rglob("matrix.csv"))
    assert len(matrices) == 4
    for path in matrices:
        assert (robbed / path).read_bytes() == (whole / path).read_bytes()


def test_a_laptop_needs_no_cluster(recipe: Path, tmp_path: Path) -> None:
    """Ctrl-C ends it and all that it has started; the same command continues."""
    out, mark = tmp_path / "own", uuid.uuid4().hex
    first = search(recipe, out, "--executor", "ray", mark=mark)
    await_tasks(out, first, 2)
    first.send_signal(signal.SIGINT)
    _, error = first.communicate(timeout=30)
    assert first.returncode == 130
    assert error.decode().splitlines()[-1] == "holdfast: interrupted; the same command continues"
    deadline = time.monotonic() + 20
    while left := started_with(mark):
        assert time.monotonic() < deadline, left
        time.sleep(0.1)
    finish(search(recipe, out, "--workers", "2"))
    assert (out / "leaderboard.csv").read_text().count("finished") == 2


def started_with(mark: str) -> list[str]:
    """The commands of the living processes that carry the mark."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if f"{MARK}={mark}".encode() in (place / "environ").read_bytes():
                found.append((place / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:80])
    return found
