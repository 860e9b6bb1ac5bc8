"""Child processes: starting Python ones, and how one ended."""

from __future__ import annotations

import os
import signal
import sys


def importable() -> str:
    """A PYTHONPATH that gives a child started with ``-P`` this process's import path, no more.

    Without ``-P`` and this path, the child would also import from its working directory.
    """
    return os.pathsep.join(entry or os.getcwd() for entry in sys.path)


def manner(code: int) -> str:
    """How a process ended, in words. code: subprocess's return code, negative for a signal."""
    if code >= 0:
        return f"exit status {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:  # real-time signals have no names
        name = f"signal {-code}"
    hint = ", as when memory runs out" if code == -signal.SIGKILL else ""
    return f"killed by {name}{hint}"
