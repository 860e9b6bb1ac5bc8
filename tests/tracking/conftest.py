"""The trackers' clients without a network, and the command as a user calls it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import holdfast

__all__ = ["holdfast"]


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file:{tmp_path / 'mlflow'}")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    for module in ("utils", "sqlite_storage"):
        monkeypatch.setattr(f"trackio.{module}.TRACKIO_DIR", tmp_path / "trackio")
    return tmp_path
