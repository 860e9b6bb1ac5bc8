"""The command as a user calls it."""

from tests.cli.conftest import holdfast

__all__ = ["holdfast"]
