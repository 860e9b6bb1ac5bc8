"""The command as a user calls it."""

from __future__ import annotations

from tests.cli.conftest import holdfast

__all__ = ["holdfast"]
