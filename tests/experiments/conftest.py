"""The commands of the paper's study and of the package, called in this process."""

from __future__ import annotations

import pytest

from tests.cli.conftest import caller, holdfast

__all__ = ["holdfast"]


@pytest.fixture
def paper(monkeypatch, capfd):
    """Call `python -m experiments.paper`; return its exit status and what it printed."""
    from experiments.paper.__main__ import app

    return caller(app, monkeypatch, capfd, "python -m experiments.paper")
