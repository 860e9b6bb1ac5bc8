"""Workers of a study that cost no import; tests/cli/test_study_killed.py starts real ones."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import IO, Any

import pytest

from holdfast.studies import worker
from tests.forked import Forked


def forking(patch: pytest.MonkeyPatch) -> list[Any]:
    """The workers that this process starts, forked from one that has imported everything.

    On the device "broken" they die at once.
    """
    started: list[Any] = []

    def popen(
        command: list[str],
        *,
        pass_fds: tuple[int],
        env: dict[str, str],
        stdout: IO[Any],
        start_new_session: bool,
        **_: object,
    ) -> Any:
        assert command[:-1] == [sys.executable, "-P", "-m", worker.MODULE]
        assert start_new_session  # Ctrl-C in the terminal is not for it
        if env.get("CUDA_VISIBLE_DEVICES") == "broken":
            started.append(subprocess.Popen(["sh", "-c", "exit 3"]))
        else:
            arguments = {"environment": env, "stdout": stdout, "channel": pass_fds[0]}
            started.append(Forked(command[-1:], module=worker.MODULE, **arguments))
        return started[-1]

    patch.setattr(worker, "subprocess", SimpleNamespace(**{**vars(subprocess), "Popen": popen}))
    return started
