"""A worker as its parent sees it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from typing import Any

from holdfast.core.children import importable

_CHILD = "holdfast.studies.workers.child"
_GRACE = 5.0  # seconds from hanging up to killing
_LAST_WORDS = 300  # characters


class WorkerProcess:
    """A started worker; it lives until :meth:`end`, or until this process dies.

    environment: variables on top of this process's own.
    Its output goes to a file that is nowhere on view: a live table may be in the terminal.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._unread = b""
        self._hung_up = False
        # Opened to append, so that it can be emptied while the worker writes.
        self._output = tempfile.TemporaryFile("ab+")  # noqa: SIM115 - closed by `end`
        self._channel, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", _CHILD, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.STDOUT,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # Ctrl-C is for the parent, which ends it
                env={**os.environ, "PYTHONPATH": importable(), **environment},
            )

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    def fileno(self) -> int:
        """What becomes readable when the worker speaks or dies."""
        return self._channel.fileno()

    def send(self, message: Mapping[str, Any]) -> None:
        """Give it a cell. That it has died meanwhile shows in :meth:`hear`."""
        os.ftruncate(self._output.fileno(), 0)  # last words are about the last cell
        try:
            self._channel.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            self._hung_up = True

    def hear(self) -> list[dict[str, Any]]:
        """What it has said since; never waits."""
        while True:
            try:
                received = self._channel.recv(1 << 16, socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            except OSError:
                received = b""
            if not received:
                self._hung_up = True
                break
            self._unread += received
        *lines, self._unread = self._unread.split(b"\n")
        return [json.loads(line) for line in lines]

    def gone(self) -> bool:
        """Whether it has died, though a child of its own may still hold the socket open."""
        return self._hung_up or self._process.poll() is not None

    def last_words(self) -> str:
        """The end of what it printed, in one line; empty when it was silent."""
        size = os.fstat(self._output.fileno()).st_size
        self._output.seek(max(0, size - 4 * _LAST_WORDS))
        text = self._output.read().decode(errors="replace")
        return " ".join(text.split())[-_LAST_WORDS:]

    def hang_up(self) -> None:
        """Let it end, as it does when its parent is gone; it may be doing anything."""
        with contextlib.suppress(OSError):
            self._channel.shutdown(socket.SHUT_RDWR)  # a fork of this process may hold it as well
        self._channel.close()

    def end(self, within: float = _GRACE) -> int:
        """Have it gone within some seconds, if need be by force; return its exit code."""
        self.hang_up()
        try:
            code = self._process.wait(within)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        return code

    def close(self) -> None:
        """Forget its output."""
        self._output.close()


def end_all(workers: Iterable[WorkerProcess]) -> None:
    """End workers side by side: no process is left, none unreaped."""
    workers = list(workers)
    for worker in workers:
        worker.hang_up()
    deadline = time.monotonic() + _GRACE
    for worker in workers:
        worker.end(max(0.0, deadline - time.monotonic()))
        worker.close()


def manner(code: int) -> str:
    """How a process ended, in words. code: as subprocess tells it, negative for a signal."""
    if code >= 0:
        return f"exit status {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hint = ", as when memory runs out" if code == -signal.SIGKILL else ""
    return f"killed by {name}{hint}"
