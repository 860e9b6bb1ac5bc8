"""A real OpenAI-compatible server on this machine: ``serve(small_writer(folder))``."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.made_once import made_once
from tests.serving.small_writer import small_writer

__all__ = ["MODEL", "serve", "shared_writer", "small_writer"]

MODEL = "holdfast/small-writer"  # what the server calls the model
REVISION = 40 * "0"
LONGEST_START = 90.0  # seconds; it takes about 8 on a quiet machine
COMMAND = "from transformers.cli.transformers import main; main()"
OPTIONS = ("--host", "127.0.0.1", "--port", "0", "--device", "cpu")


def shared_writer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small writer, trained once for all tests and all workers of one session."""
    return made_once(tmp_path_factory, "small-writer", small_writer)


@contextmanager
def serve(directory: Path) -> Iterator[str]:
    """Serve the saved model in ``directory`` until the context ends; yield its URL.

    A server of its own for each call, on a port that the system picks, killed in any case.
    """
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "server.log"
        with log.open("wb") as written:
            process = subprocess.Popen(
                [sys.executable, "-c", COMMAND, "serve", MODEL, *OPTIONS],
                env=os.environ
                | {
                    "HF_HUB_CACHE": str(_cache(Path(folder), directory)),
                    "HF_HUB_OFFLINE": "1",
                    "OMP_NUM_THREADS": "1",
                },
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=written,
                stderr=subprocess.STDOUT,
            )
        try:
            yield _url(process, log)
        finally:
            process.kill()
            process.wait()


def _cache(folder: Path, directory: Path) -> Path:
    """The model as the hub's cache would hold it: only there does the server list models."""
    cache = folder / "cache"
    repository = cache / f"models--{MODEL.replace('/', '--')}"
    snapshot = repository / "snapshots" / REVISION
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(REVISION)
    for file in directory.iterdir():
        (snapshot / file.name).symlink_to(file.resolve())
    return cache


def _url(process: subprocess.Popen[bytes], log: Path) -> str:
    """Wait until the server says where it listens, and is well."""
    start = time.monotonic()
    while time.monotonic() - start < LONGEST_START and process.poll() is None:
        found = re.search(r"running on (http://127\.0\.0\.1:\d+)", log.read_text(errors="replace"))
        if found:
            with urllib.request.urlopen(f"{found[1]}/health", timeout=30) as health:
                assert health.status == 200
            return f"{found[1]}/v1"
        time.sleep(0.1)
    raise AssertionError(f"the server did not start: {log.read_text(errors='replace')[-2000:]}")
