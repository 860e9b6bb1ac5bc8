"""How a child process ended, in words."""

from __future__ import annotations

import signal

import pytest

from holdfast.core.processes import manner


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (3, "exit status 3"),
        (-signal.SIGTERM, "killed by SIGTERM"),
        (-signal.SIGKILL, "killed by SIGKILL, as when memory runs out"),
        (-(signal.SIGRTMIN + 1), f"killed by signal {signal.SIGRTMIN + 1}"),
    ],
)
def test_how_a_process_ended(code: int, words: str) -> None:
    assert manner(code) == words
