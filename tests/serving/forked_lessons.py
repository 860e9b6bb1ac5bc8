"""The lessons of a served memory without the seconds that an interpreter takes to import.

A server that runs this module asks the process of the tests for each lesson, which forks it. The
tests of tests/serving/test_served.py and tests/memory/test_detached.py start real ones too.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import runpy
import signal
import sys
import threading
from collections.abc import Mapping
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import IO, Any

from tests.forked import Forked

ROOT = Path(__file__).resolve().parents[2]
ADDRESS = "HOLDFAST_TEST_LESSONS"  # of the environment of a server: where it asks


class ForkedLessons:
    """The side of the tests. module: what each lesson runs, with the arguments of holdfast."""

    def __init__(self, module: str = "holdfast") -> None:
        self._module = module
        self._listener = Listener(family="AF_UNIX")
        self._begun: list[Forked] = []
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def address(self) -> str:
        return str(self._listener.address)

    def alive(self) -> list[int]:
        """The processes of lessons that have not ended."""
        return [one.pid for one in self._begun if one.poll() is None]

    def close(self) -> None:
        """Kill what has not ended."""
        Client(self.address).close()  # a request for nothing ends the thread
        for one in self._begun:
            one.kill()
            one.wait()

    def _listen(self) -> None:
        with self._listener:
            while True:
                asking = self._listener.accept()
                try:
                    request = json.loads(asking.recv_bytes())
                except EOFError:
                    return
                threading.Thread(target=self._answer, args=(asking, request), daemon=True).start()

    def _answer(self, asking: Connection, request: dict[str, Any]) -> None:
        with asking, open(request["log"], "ab") as log, contextlib.suppress(OSError):
            lesson = Forked(
                request["arguments"],
                module=self._module,
                environment=request["environment"],
                path=[ROOT],
                stdout=log,
                stderr=log,
                file_bytes=request["file_bytes"],
            )
            self._begun.append(lesson)
            asking.send_bytes(str(lesson.pid).encode())
            asking.send_bytes(
                str(lesson.wait()).encode()
            )  # fails where the server has ended before


class Lesson:
    """The side of the server: what it needs of :class:`asyncio.subprocess.Process`."""

    def __init__(self, told: Connection) -> None:
        self._told = told
        self.pid = int(told.recv_bytes())
        self.returncode: int | None = None

    async def wait(self) -> int:
        while self.returncode is None:
            if self._told.poll():
                self.returncode = int(self._told.recv_bytes())
            else:
                await asyncio.sleep(0.01)
        return self.returncode

    def terminate(self) -> None:
        os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)


async def begin_lesson(
    *command: str, env: Mapping[str, str], stdout: IO[bytes], **_: object
) -> Lesson:
    """Takes the place of :func:`asyncio.create_subprocess_exec`."""
    assert command[:4] == (sys.executable, "-P", "-m", "holdfast")
    told = Client(os.environ[ADDRESS])
    soft, _hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    request = {"arguments": command[4:], "environment": dict(env), "log": stdout.name}
    told.send_bytes(json.dumps({**request, "file_bytes": soft}).encode())
    return await asyncio.to_thread(Lesson, told)


if __name__ == "__main__":
    asyncio.create_subprocess_exec = begin_lesson  # type: ignore[assignment]
    runpy.run_module("holdfast", run_name="__main__", alter_sys=True)
