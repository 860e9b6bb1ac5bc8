"""Processes that learn, to be killed. They are forked from one that has imported everything."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable
from contextlib import nullcontext
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from holdfast import HoldfastError, RunConfig
from holdfast.learning.progress import Progress
from holdfast.learning.trajectory import Trajectory
from tests.forked import CONTEXT
from tests.trajectory.instants import heard

Child = tuple[BaseProcess, Connection]


def start(values: dict[str, Any], place: Path, *, hold: bool = False) -> Child:
    """Let another process learn; it says ``ready``, then how it ended.

    hold: it stops in the middle of its first task and says so.
    """
    return begin(_learn, (values, str(place)), hold=hold)


def begin(
    work: Callable[..., Any],
    arguments: tuple[Any, ...],
    *,
    instant: int | None = None,
    hold: bool = False,
    file_bytes: int | None = None,
) -> Child:
    """Let another process do ``work(*arguments, progress)``; the rest is as for :func:`start`.

    instant: it kills itself at the n-th; file_bytes: no file may be larger.
    """
    ours, theirs = CONTEXT.Pipe()
    process = CONTEXT.Process(
        target=_child, args=(work, arguments, theirs, instant, file_bytes, hold), daemon=True
    )
    process.start()
    theirs.close()
    assert ours.recv() == "ready"
    return process, ours


def finish(child: Child) -> tuple[int | None, str | None]:
    """Wait for a child: its exit code, negative for a signal, and its last words, if any."""
    process, connection = child
    process.join(timeout=120)
    try:
        words = connection.recv() if connection.poll() else None
    except EOFError:
        words = None
    connection.close()
    return process.exitcode, words


class _Holding(Progress):
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def step(self, phase: str, task: int, done: int, total: int) -> None:
        self._connection.send("holding")
        signal.pause()


def _learn(values: dict[str, Any], place: str, progress: Progress) -> None:
    Trajectory(RunConfig.of(values), place).advance(progress=progress)


def _child(
    work: Callable[..., Any],
    arguments: tuple[Any, ...],
    connection: Connection,
    instant: int | None,
    file_bytes: int | None,
    hold: bool,
) -> None:
    connection.send("ready")
    passed = 0

    def hear(name: str) -> None:
        nonlocal passed
        passed += 1
        if passed == instant:
            os.kill(os.getpid(), signal.SIGKILL)

    if file_bytes is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, hard))
    progress = _Holding(connection) if hold else Progress()
    try:
        with heard(hear) if instant is not None else nullcontext():
            work(*arguments, progress)
        connection.send("done")
    except HoldfastError as error:
        connection.send(str(error))
