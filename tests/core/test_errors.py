"""What a process writes of its error is the same error for its starter; how a process ended."""

from __future__ import annotations

import signal

import pytest

from holdfast.core.errors import (
    HoldfastError,
    InUseError,
    NoSpaceError,
    UnwritableError,
    error_of,
)
from holdfast.core.processes import manner


@pytest.mark.parametrize("kind", [HoldfastError, InUseError, NoSpaceError, UnwritableError])
def test_an_error_crosses_to_another_process_by_its_kind(kind) -> None:
    message = 'item 1: "No space left on device": another process is writing here'
    read = error_of(kind.code, str(kind(message)))
    assert (type(read), str(read)) == (kind, message)
    assert type(error_of("invented", message)) is HoldfastError


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
