"""The command as a user calls it, and a trajectory that is exported."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import holdfast
from tests.exports.exported import configured, facts, learned

__all__ = ["holdfast"]


@pytest.fixture(scope="package")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("exports")


@pytest.fixture(scope="package")
def stream(place: Path) -> Path:
    return facts(place)


@pytest.fixture(scope="package")
def run(place: Path, stream: Path, backbone_directory: Path) -> Path:
    """Two tasks, each merged, with replay; every boundary is kept."""
    return learned(place / "run", configured(backbone_directory, stream, "replay_merge"))


@pytest.fixture(scope="package")
def taught(place: Path, stream: Path) -> Path:
    """One task on the embedded backbone, which lies beside its adapter."""
    return learned(place / "embedded", configured("embedded", stream, "replay_merge"), 1)  # type: ignore[arg-type]
