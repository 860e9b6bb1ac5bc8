"""Commands for separate processes, and a background process that learns what is on file.

It outlives the process that started it. If another process learns in the same memory, it waits for
that one and learns what is left.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

from holdfast.core.errors import HoldfastError
from holdfast.core.files import unshared
from holdfast.core.processes import importable
from holdfast.memory.record import LOG_FILE

if TYPE_CHECKING:
    from holdfast.core.reporting import WorkReport

_HOLDFAST = (sys.executable, "-P", "-m", "holdfast")


def learning_command(directory: Path) -> list[str]:
    """The command of a process that learns what is on file in :func:`learning_environment`."""
    return [*_HOLDFAST, "learn", str(directory.resolve()), "--wait", "--existing"]


def consolidating_command(directory: Path) -> list[str]:
    """The command of a process that puts all lessons into one adapter while this one runs."""
    return [*_HOLDFAST, "consolidate", str(directory.resolve()), "--server", str(os.getpid())]


def while_it_runs(process: int, report: WorkReport) -> WorkReport:
    """A report that ends its work as Ctrl-C does, once another process has ended or was killed."""

    def reported(what: str, done: int, total: int) -> None:
        try:
            os.kill(process, 0)  # sends no signal
        except OSError:
            raise KeyboardInterrupt from None
        report(what, done, total)

    return reported


def forgetting_command(directory: Path, questions: Sequence[str]) -> list[str]:
    """The command of a process that forgets facts and prints JSON, in the same environment."""
    return [*_HOLDFAST, "forget", "--json", "--", str(directory.resolve()), *questions]


def learning_environment() -> dict[str, str]:
    """The environment of these processes, so that they import what this one does."""
    return {**os.environ, "PYTHONPATH": importable()}


def opened_log(directory: Path) -> IO[bytes]:
    """Open the log of such a process's output. Raises HoldfastError if it cannot be written."""
    try:
        return unshared(directory / LOG_FILE).open("ab")
    except OSError as error:
        raise HoldfastError(
            f"{directory / LOG_FILE}: cannot be written ({error.strerror}); the facts are on file: "
            f"holdfast learn {directory} learns them"
        ) from error


def start_learning(directory: Path) -> int:
    """Start to learn in the background; return the process id. Raises as :func:`opened_log`."""
    with opened_log(directory) as log:
        process = subprocess.Popen(
            learning_command(directory),
            env=learning_environment(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # neither Ctrl-C nor a closed terminal reaches it
        )
    process.returncode = 0  # nobody waits for it; without this Python warns that it still runs
    return process.pid
