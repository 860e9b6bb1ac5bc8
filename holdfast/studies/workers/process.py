"""The parent's handle of a worker process."""

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
_GRACE = 5.0  # seconds from closing the socket to killing
_LAST_WORDS = 300  # characters


class WorkerProcess:
    """A started worker; it lives until :meth:`end`, or until this process dies.

    environment: variables on top of this process's own.
    Its output goes to a temporary file, because the terminal may show a live table.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._unread = b""
        self._hung_up = False
        # Opened to append, so that it can be truncated while the worker writes.
        self._output = tempfile.TemporaryFile("ab+")  # noqa: SIM115 - closed by `end`
        self._channel, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", _CHILD, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.STDOUT,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # Ctrl-C reaches only the parent, which ends the worker
                env={**os.environ, "PYTHONPATH": importable(), **environment},
            )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def fileno(self) -> int:
        """The file descriptor that becomes readable when the worker sends a message or dies."""
        return self._channel.fileno()

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a cell to the worker. A worker that has died is noticed by :meth:`hear`."""
        os.ftruncate(self._output.fileno(), 0)  # last_words: of the latest cell only
        try:
            self._channel.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            self._hung_up = True

    def hear(self) -> list[dict[str, Any]]:
        """The messages received since the last call; does not wait."""
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
        """Whether it has died, even if a child process of it still holds the socket open."""
        return self._hung_up or self._process.poll() is not None

    def last_words(self) -> str:
        """The end of its output, in one line; empty when it printed nothing."""
        size = os.fstat(self._output.fileno()).st_size
        self._output.seek(max(0, size - 4 * _LAST_WORDS))
        text = self._output.read().decode(errors="replace")
        return " ".join(text.split())[-_LAST_WORDS:]

    def hang_up(self) -> None:
        """Close the socket, upon which the worker exits at once, whatever it is doing."""
        with contextlib.suppress(OSError):
            self._channel.shutdown(socket.SHUT_RDWR)  # a fork of this process may hold it open
        self._channel.close()

    def end(self, within: float = _GRACE) -> int:
        """Hang up, kill the worker if it still runs after some seconds; return its exit code."""
        self.hang_up()
        try:
            code = self._process.wait(within)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        return code

    def close(self) -> None:
        """Close the file of its output."""
        self._output.close()


def end_all(workers: Iterable[WorkerProcess]) -> None:
    """End workers in parallel; every process is reaped."""
    workers = list(workers)
    for worker in workers:
        worker.hang_up()
    deadline = time.monotonic() + _GRACE
    for worker in workers:
        worker.end(max(0.0, deadline - time.monotonic()))
        worker.close()


def manner(code: int) -> str:
    """How a process ended, in words. code: subprocess's return code, negative for a signal."""
    if code >= 0:
        return f"exit status {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hint = ", as when memory runs out" if code == -signal.SIGKILL else ""
    return f"killed by {name}{hint}"
