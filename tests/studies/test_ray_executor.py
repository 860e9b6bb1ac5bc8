"""What a Ray executor refuses before anything is learned."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from holdfast.core.errors import HoldfastError
from holdfast.studies import ray_executor
from holdfast.studies.ray_executor import RayExecutor, learn
from tests.refused import line_of


def test_a_node_that_does_not_see_the_store_learns_nothing(tmp_path: Path) -> None:
    (tmp_path / ".store").write_text("another")
    order = {"config": {}, "horizon": 1, "directory": str(tmp_path / "cell")}
    (message,) = learn(order, {}, "this")
    assert message["kind"] == "finished"
    assert message["error"] == (
        f"node {socket.gethostname()} does not see {tmp_path}; put the store where all nodes see "
        "it (--store)"
    )
    assert not (tmp_path / "cell").exists()


def test_an_address_where_nobody_answers_is_refused_at_once() -> None:
    with socket.socket() as unused:  # bound, and nobody listens
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        began = time.monotonic()
        line = line_of(RayExecutor, f"127.0.0.1:{port}")
        assert line.startswith(f"Ray at 127.0.0.1:{port}: nobody answers")
        assert time.monotonic() - began < 8


@pytest.mark.parametrize("address", ["ray://10.0.0.1:10001", "10.0.0.1", ":6379", "host:x"])
def test_an_address_of_another_form_is_refused(address: str) -> None:
    assert line_of(RayExecutor, address).startswith(f"Ray at {address}: write host:port")


def test_workers_a_gpu_of_a_cluster_without_any(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = SimpleNamespace(cluster_resources=lambda: {"CPU": 2})
    monkeypatch.setattr(ray_executor, "_connected", lambda _: cluster)
    with pytest.raises(HoldfastError, match=r"2 workers a GPU, and Ray's cluster has no GPU"):
        RayExecutor("auto", workers_per_gpu=2)
