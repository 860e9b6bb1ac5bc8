"""Workers of a study that cost no import; tests/studies/test_local.py starts real ones too."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import IO, Any

import pytest

from holdfast.studies import worker
from tests.forked import Forked


def forking(patch: pytest.MonkeyPatch) -> list[Forked]:
    """The workers that this process starts, forked from one that has imported everything."""
    started: list[Forked] = []

    def popen(
        command: list[str],
        *,
        pass_fds: tuple[int],
        env: dict[str, str],
        stdout: IO[Any],
        **_: object,
    ) -> Forked:
        assert command[:-1] == [sys.executable, "-P", "-m", worker.MODULE]
        one = Forked(
            command[-1:], module=worker.MODULE, environment=env, stdout=stdout, channel=pass_fds[0]
        )
        started.append(one)
        return one

    patch.setattr(worker, "subprocess", SimpleNamespace(**{**vars(subprocess), "Popen": popen}))
    return started
