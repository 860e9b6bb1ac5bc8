"""A search by real processes: on a Ray cluster, robbed of a node, interrupted."""

from __future__ import annotations

import contextlib
import os
import signal
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
import yaml

from tests.forked import Forked
from tests.studies.inline import Inline

TABLES = ("trace.csv", "trace.json", "leaderboard.csv", "leaderboard.json")
MARK = "HOLDFAST_TEST_MARK"  # of a process and all that it starts
# Ray's workers are nice; beside other tests they would hardly ever run.
NICENESS = {"RAY_worker_niceness": "0"}


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory, backbone_directory: Path) -> Path:
    """Four candidates, of which two go on to the second horizon."""
    recipe = {
        "base": "demo",
        "set": {
            "backbone.name": str(backbone_directory),
            "stream.tasks": 6,
            "stream.items_per_task": 4,
            "optim.epochs": 40,
            "lora.rank": 2,
            "evaluation.max_new_tokens": 16,
        },
        "space": {"weight": ["none", "si"], "allocation": ["shared", "merge"]},
        "schedule": {"horizons": [1, 6], "survivors": ["half"]},
        "seeds": [1],
    }
    path = tmp_path_factory.mktemp("recipe") / "small.yaml"
    path.write_text(yaml.safe_dump(recipe))
    return path


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, recipe: Path) -> Path:
    """The search in this process, one cell after the other."""
    from holdfast.cli.main import app

    place = tmp_path_factory.mktemp("whole")
    arguments = ["search", str(recipe), "--out", str(place)]
    with patch("holdfast.cli.study.executor", lambda *_: Inline()):
        assert app(arguments, standalone_mode=False) is None
    return place


def begun(recipe: Path, out: Path, *options: str, tasks: int, **more: str) -> Forked:
    """The search in a process of its own, whose cells have learned so many tasks together."""
    arguments = ["search", recipe, "--out", out, *options]
    process = Forked(arguments, stderr="pipe", environment={**os.environ, **NICENESS, **more})
    deadline = time.monotonic() + 300  # starting Ray and workers takes what the machine has left
    while sum(len(log.read_bytes().splitlines()) for log in out.rglob("log.jsonl")) < tasks:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return process


def tables(place: Path) -> dict[str, bytes]:
    files = [place / name for name in TABLES] + [*place.rglob("matrix.csv")]
    return {str(path.relative_to(place)): path.read_bytes() for path in files}


@pytest.fixture
def cluster() -> Iterator[object]:
    """A Ray cluster of a head and another node, one cell at a time on each."""
    from ray.cluster_utils import Cluster

    size = {"num_cpus": 1, "object_store_memory": 80 * 1024**2}
    with patch.dict(os.environ, NICENESS):
        nodes = Cluster(initialize_head=True, head_node_args=size)
        nodes.other, nodes.size = nodes.add_node(**size), size
    yield nodes
    nodes.shutdown()


def test_robbed_of_a_node_the_search_ends_with_the_same_bytes(
    cluster, recipe: Path, whole: Path, tmp_path: Path
) -> None:
    options = ("--executor", "ray", "--ray-address", cluster.address)
    for attempt in range(4):  # on a busy machine one node may learn all before the other begins
        out = tmp_path / str(attempt)
        process = begun(recipe, out, *options, tasks=4)
        while process.poll() is None and not both_learn(out):
            time.sleep(0.02)
        cluster.remove_node(cluster.other, allow_graceful=False)
        _, error = process.communicate(timeout=240)
        assert process.poll() == 0, error
        assert tables(whole) == tables(out) and len(tables(out)) == len(TABLES) + 4
        if "lost its worker" in error:
            return
        cluster.other = cluster.add_node(**cluster.size)
    raise AssertionError(error)


def both_learn(out: Path) -> bool:
    """Whether the two finalists are learned at once, so by both nodes."""
    lines = [len(log.read_bytes().splitlines()) for log in out.rglob("log.jsonl")]
    return sum(2 <= count <= 4 for count in lines) >= 2


def test_a_laptop_needs_no_cluster_and_ctrl_c_ends_all_that_was_started(
    recipe: Path, tmp_path: Path
) -> None:
    mark = uuid.uuid4().hex
    options = ("--executor", "ray", "--workers", "1")
    process = begun(recipe, tmp_path, *options, tasks=1, **{MARK: mark})
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=30)
    assert process.poll() == 130
    assert error.splitlines()[-1] == "holdfast: interrupted; the same command continues"
    deadline = time.monotonic() + 90  # Ray's agents look for their parent now and then
    while processes := started_with(mark):
        assert time.monotonic() < deadline, processes
        time.sleep(0.1)


def started_with(mark: str) -> list[str]:
    """The commands of the living processes that carry the mark."""
    commands = []
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if f"{MARK}={mark}".encode() in (place / "environ").read_bytes():
                commands.append((place / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:80])
    return commands
