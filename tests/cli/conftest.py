"""A directory with a tiny backbone, and the command as a user calls it."""

from __future__ import annotations

import sys
from typing import NamedTuple

import pytest


class Outcome(NamedTuple):
    status: int
    out: str
    err: str


def refused(outcome: Outcome, *words: str) -> None:
    """It must have ended with status 2 and one line with the words."""
    assert outcome.status == 2, outcome
    assert outcome.err.startswith("holdfast: ") and outcome.err.count("\n") == 1, outcome.err
    for word in words:
        assert word in outcome.err


@pytest.fixture
def holdfast(monkeypatch, capfd):
    """Call the command in this process; return its exit status and what it printed."""
    from holdfast.cli.main import app

    return caller(app, monkeypatch, capfd)


def caller(app, monkeypatch, capfd, name="holdfast"):
    """A function that calls a command in this process. name: what its user calls it."""

    def call(*arguments: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["holdfast", *map(str, arguments)])
        capfd.readouterr()
        status = 0
        try:
            app(prog_name=name)
        except SystemExit as exit_:
            status = exit_.code if isinstance(exit_.code, int) else int(exit_.code is not None)
        return Outcome(status, *capfd.readouterr())

    return call


@pytest.fixture
def settings(backbone_directory) -> list[str]:
    """A run that takes a second."""
    return [
        f"backbone.name={backbone_directory}",
        "stream.items_per_task=4",
        "stream.tasks=3",
        "optim.epochs=1",
        "lora.rank=2",
        "sampling.samples=4",
        "sampling.max_new_tokens=6",
        "evaluation.max_new_tokens=16",
    ]
