"""One trained model and one server for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chromium import browser
from tests.cli.conftest import holdfast
from tests.serving.fixtures import serve, shared_writer

__all__ = ["browser", "holdfast"]


@pytest.fixture(scope="session")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shared_writer(tmp_path_factory)


@pytest.fixture(scope="session")
def url(writer: Path) -> Iterator[str]:
    with serve(writer) as url:
        yield url
