"""One command that a launcher started several times: one run, with one voice and one end."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any

from holdfast.core import processes
from holdfast.core.errors import HoldfastError


def as_one_run(command: Callable[[], Any]) -> Any:
    """Do a command, which ends by SystemExit; started several times, all of it is one run.

    Only the first process prints. A launcher stops all processes as soon as one has failed, so one
    that fails ends when the error has been said.
    """
    if processes.launched() == 1:
        return command()
    try:
        with processes.joined(), _only_the_first_prints():
            return _ending_with_all(command)
    except HoldfastError as error:  # the processes did not meet
        print(f"holdfast: {error}", file=sys.stderr)
        raise SystemExit(2) from None


def _ending_with_all(command: Callable[[], Any]) -> Any:
    # A verb sets its own handler, and restores this one: while an error is being said, the launcher
    # may send the signal because of another process.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        return command()
    except SystemExit as end:
        if not end.code:
            return None
        processes.to_say()
        sys.stdout.flush()
        sys.stderr.flush()
        # Not the interpreter's own end: torch's connections wait there for processes that are gone.
        os._exit(end.code if isinstance(end.code, int) else 1)


@contextmanager
def _only_the_first_prints() -> Iterator[None]:
    if processes.is_rank_zero():
        yield
        return
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        yield
