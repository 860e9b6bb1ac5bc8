"""What a process writes of its error is the same error for the program that started it."""

from __future__ import annotations

import json

import pytest

from holdfast.core.errors import (
    ERRORS_FOR,
    PROGRAMS,
    HoldfastError,
    InUseError,
    NoSpaceError,
    error_line,
    error_of,
)


@pytest.mark.parametrize("kind", [HoldfastError, InUseError, NoSpaceError])
def test_an_error_crosses_to_another_process_by_its_kind(kind, monkeypatch) -> None:
    told = 'item 1: "No space left on device": another process is writing here'
    error = kind(told)
    assert error_line(error, told) == f"holdfast: {told}"
    monkeypatch.setenv(ERRORS_FOR, PROGRAMS)
    values = json.loads(error_line(error, told))
    read = error_of(values["code"], values["error"])
    assert (type(read), str(read)) == (kind, told)
    assert type(error_of("invented", told)) is HoldfastError
