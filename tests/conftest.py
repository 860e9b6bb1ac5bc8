"""What every test shares: quiet libraries, and the GPU and the data where they are."""

from __future__ import annotations

import os
from pathlib import Path

# Before torch is imported anywhere: the models of the tests are tiny, and `make test` runs several
# workers, so more threads would only contend. No test may reach for a hub.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ["HF_HUB_OFFLINE"] = "1"

import pytest
from hypothesis import HealthCheck, settings

# Published question sets, for the tests that read them; they are no part of the repository.
DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
ON_CI = os.environ.get("CI", "").lower() in {"1", "true"}

settings.register_profile("house", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("house"), derandomize=True)
settings.load_profile("ci" if ON_CI else "house")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what is marked `gpu` where there is none."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    import torch

    if not torch.cuda.is_available():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU"))


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of published data files; a file that is missing from it is a failure."""
    folder = Path(os.environ.get("HOLDFAST_DATA", DATA))
    if not folder.is_dir():
        pytest.skip("needs the published data files; set HOLDFAST_DATA to their folder")
    return folder
