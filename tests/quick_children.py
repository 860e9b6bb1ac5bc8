"""The command `holdfast` whose own children cost no import: run by ``Forked(module=MODULE)``.

A process that is forked before the command begins, and has only one thread, forks each child of
``python -P -m holdfast`` anew. It is the command's child as if it had been started as users do: its
parent waits for it, sees what killed it, and it outlives that parent. Any other program is started
as usual. What the command line of a child says is read as always; that a fresh interpreter takes it
is shown by the tests that start one.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import resource
import runpy
import socket
import subprocess
import sys
import traceback
from typing import Any

MODULE = __name__ if sys.platform == "linux" else "holdfast"
NAME = "begins-children"  # of the process that forks, in /proc
_SUBREAPER = 36  # of prctl: a process whose parent has ended becomes a child of this one
_BEGIN = ["-P", "-m", "holdfast"]
# Of a child's environment: a function, as module:name, that each child calls before it begins.
FIRST = "TESTS_CALL_FIRST"
_LONGEST = 1 << 17  # of a request


def begin_quickly() -> None:
    """From now on this process starts children of ``python -P -m holdfast`` by forking them."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        ours.close()
        _serve(theirs)
    theirs.close()
    assert ctypes.CDLL(None, use_errno=True).prctl(_SUBREAPER, 1, 0, 0, 0) == 0

    class Popen(subprocess.Popen):  # type: ignore[type-arg]
        def _execute_child(self, args: Any, *rest: Any) -> None:
            executable, _, _, _, cwd, env, _, _, _, *pipes = rest
            if isinstance(args, str) or list(args[:4]) != [sys.executable, *_BEGIN]:
                super()._execute_child(args, *rest)  # type: ignore[misc]
                return
            stdin, _, _, stdout, _, stderr, *_, new_session, _ = pipes
            assert cwd is None and executable is None
            request = {
                "arguments": list(args[4:]),
                "environment": dict(os.environ if env is None else env),
                "new_session": new_session,
                "file_bytes": resource.getrlimit(resource.RLIMIT_FSIZE),
            }
            socket.send_fds(ours, [json.dumps(request).encode()], [stdin, stdout, stderr])
            self.pid = int(ours.recv(20))
            self._child_created = True
            self._close_pipe_fds(*pipes[:6])  # type: ignore[attr-defined]

    subprocess.Popen = Popen  # type: ignore[misc]
    sys.modules["uvloop"] = None  # type: ignore[assignment]  # it would start processes by itself


def _serve(asked: socket.socket) -> None:
    """Fork a process for each request, until nobody can ask any more."""
    os.setsid()
    with open("/proc/self/comm", "w") as comm, open(os.devnull, "r+b") as nothing:
        comm.write(NAME)
        for number in range(3):
            os.dup2(nothing.fileno(), number)
    while True:
        request, files, _, _ = socket.recv_fds(asked, _LONGEST, 3)
        if not request:
            os._exit(0)
        read, written = os.pipe()
        between = os.fork()
        if between == 0:
            child = os.fork()
            if child:
                os.write(written, str(child).encode())
                os._exit(0)
            asked.close()
            os.close(read)
            os.close(written)
            _child(files, **json.loads(request))
        os.close(written)
        for file in files:
            os.close(file)
        os.waitpid(between, 0)  # whose child now has the one who asked as its parent
        asked.send(os.read(read, 20))
        os.close(read)


def _child(
    files: list[int],
    arguments: list[str],
    environment: dict[str, str],
    new_session: bool,
    file_bytes: tuple[int, int],
) -> None:
    """Be ``python -P -m holdfast arguments`` to the end."""
    status = 1
    try:
        if new_session:
            os.setsid()
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        with open("/proc/self/comm", "w") as comm:
            comm.write("holdfast")
        soft, hard = file_bytes
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = ["holdfast", *arguments]
        if FIRST in environment:
            module, name = environment[FIRST].split(":")
            getattr(importlib.import_module(module), name)()
        runpy.run_module("holdfast", run_name="__main__", alter_sys=True)
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    begin_quickly()
    runpy.run_module("holdfast", run_name="__main__", alter_sys=True)
