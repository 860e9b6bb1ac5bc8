"""A browser, the command as a user calls it, and a memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chromium import browser
from tests.cli.conftest import holdfast
from tests.serving.chat_memories import copied

__all__ = ["browser", "holdfast"]


@pytest.fixture
def directory(chat_memory: Path, tmp_path: Path) -> Path:
    """A memory of the test's own."""
    return copied(chat_memory, tmp_path / "m")
