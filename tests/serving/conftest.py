"""A browser, and the command as a user calls it."""

from __future__ import annotations

from tests.chromium import browser
from tests.cli.conftest import holdfast

__all__ = ["browser", "holdfast"]
