"""A search on a Ray cluster: the same results as on one machine, also when a node goes."""

from __future__ import annotations

import contextlib
import signal
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.real_search import (
    assert_same_bytes,
    await_tasks,
    begun,
    finish,
    undisturbed,
    write_recipe,
)

MARK = "HOLDFAST_TEST_MARK"  # of a process and all that it starts


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


@pytest.fixture
def cluster() -> Iterator[TwoNodes]:
    nodes = TwoNodes()
    yield nodes
    nodes.shutdown()


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory, tiny_directory: Path) -> Path:
    return write_recipe(tmp_path_factory.mktemp("recipe") / "small.yaml", tiny_directory, (1, 8))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, recipe: Path) -> Path:
    place = tmp_path_factory.mktemp("whole")
    undisturbed(recipe, place)
    return place


def test_robbed_of_a_node_the_search_ends_with_the_same_bytes(
    cluster: TwoNodes, recipe: Path, whole: Path, tmp_path: Path
) -> None:
    process = begun(recipe, tmp_path, "--executor", "ray", "--ray-address", cluster.address)
    await_tasks(tmp_path, process, 5)
    cluster.lose_a_node()
    assert "lost its worker" in finish(process)
    assert_same_bytes(whole, tmp_path)


def test_a_laptop_needs_no_cluster(recipe: Path, whole: Path, tmp_path: Path) -> None:
    """Ctrl-C ends it and all that it has started; what is learned is continued."""
    mark = uuid.uuid4().hex
    process = begun(recipe, tmp_path, "--executor", "ray", environment={MARK: mark})
    await_tasks(tmp_path, process, 2)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=30)
    assert process.poll() == 130
    assert error.splitlines()[-1] == "holdfast: interrupted; the same command continues"
    deadline = time.monotonic() + 90  # Ray's agents look for their parent now and then
    while left := started_with(mark):
        assert time.monotonic() < deadline, left
        time.sleep(0.1)
    undisturbed(recipe, tmp_path)
    assert_same_bytes(whole, tmp_path)


def started_with(mark: str) -> list[str]:
    """The commands of the living processes that carry the mark."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if f"{MARK}={mark}".encode() in (place / "environ").read_bytes():
                found.append((place / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:80])
    return found
