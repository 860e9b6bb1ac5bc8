"""What every test shares: quiet libraries, the real data and the GPU where there are any."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

# Before torch is imported anywhere: the models of the tests are tiny, and `make test` runs several
# workers, so more threads would only contend. No test may reach for a hub.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ["HF_HUB_OFFLINE"] = "1"

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("HOLDFAST_DATA") or ROOT.parent / "shared" / "data")
ON_CI = os.environ.get("CI", "").lower() in {"1", "true"}

settings.register_profile("house", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("house"), derandomize=True)
settings.load_profile("ci" if ON_CI else "house")


@pytest.fixture(scope="session")
def real_data() -> Callable[[str], Path]:
    """The path of a real data file or folder under HOLDFAST_DATA, by its relative name.

    Skips where there is none. On CI a data folder that lacks the name is a failure: the check was
    meant to run there.
    """

    def find(name: str) -> Path:
        path = DATA / name
        if path.exists():
            return path
        reason = f"no {name} under HOLDFAST_DATA ({DATA})"
        if ON_CI and DATA.is_dir():
            pytest.fail(reason)
        pytest.skip(reason)

    return find


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what is marked `gpu` where there is none."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    import torch

    if not torch.cuda.is_available():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU"))
