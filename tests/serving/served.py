"""`holdfast serve` in a process of its own, and requests to it.

A server that runs this module asks the process of the tests for each lesson, and for each process
that forgets, which forks it: so these cost no import. tests/serving/test_agent.py starts real ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import resource
import runpy
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import IO, Any
from unittest.mock import patch
from urllib.parse import urlsplit

from tests.forked import Forked

ROOT = Path(__file__).resolve().parents[2]
JSON = {"Content-Type": "application/json"}
ADDRESS = "HOLDFAST_TEST_LESSONS"  # of the environment of a server: where it asks for lessons


@dataclass
class Served:
    """A server. url: without a path; key: what it printed, if any; errors: what it says there."""

    process: Forked
    lessons: ForkedLessons
    url: str
    key: str | None
    errors: IO[str]

    def complaints(self) -> str:
        self.errors.seek(0)
        return self.errors.read()

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] = JSON
    ) -> tuple[int, Any]:
        """A response's status and its JSON value."""
        place = urlsplit(self.url)
        connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=300)
        with contextlib.closing(connection):
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read())

    def post(self, path: str, values: Any) -> tuple[int, Any]:
        return self.request("POST", path, json.dumps(values).encode())

    def ask(self, question: str) -> dict[str, Any]:
        status, answer = self.post("/v1/completions", {"model": "m", "prompt": question})
        assert status == 200, answer
        choice: dict[str, Any] = answer["choices"][0]
        return choice

    def facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = self.request("GET", "/facts")[1]
        return facts


@contextmanager
def serving(
    memory: Path, *options: str, lesson: str = "holdfast", **environment: str
) -> Iterator[Served]:
    """Serve a memory until the block ends; the server and its lesson are killed then.

    lesson: the module that each lesson runs.
    """
    lessons = ForkedLessons(lesson)
    with tempfile.TemporaryFile("w+") as errors:
        process = Forked(
            ["serve", memory, "--port", "0", *options],
            module="tests.serving.served",
            environment={**os.environ, **environment, ADDRESS: str(lessons.listener.address)},
            path=[ROOT],
            stdout="pipe",
            stderr=errors,
        )
        try:
            assert process.stdout is not None
            page = process.stdout.readline().strip().removeprefix("page: ")
            if not page:
                errors.seek(0)
                raise AssertionError(errors.read())
            assert "endpoint: " in process.stdout.readline()
            url, _, key = page.partition("/#key=")
            yield Served(process, lessons, url.rstrip("/"), key or None, errors)
        finally:
            process.kill()
            process.wait()
            lessons.close()
            if process.stdout is not None:
                process.stdout.close()


class ForkedLessons:
    """The side of the tests. module: what each lesson runs, with the arguments of holdfast."""

    def __init__(self, module: str) -> None:
        self._module = module
        self.listener = Listener(family="AF_UNIX")
        self._begun: list[Forked] = []
        threading.Thread(target=self._listen, daemon=True).start()

    def alive(self) -> list[int]:
        """The processes of lessons that have not ended."""
        return [lesson.pid for lesson in self._begun if lesson.poll() is None]

    def close(self) -> None:
        """Kill what has not ended."""
        Client(self.listener.address).close()  # a request for nothing ends the thread
        for lesson in self._begun:
            lesson.kill()
            lesson.wait()

    def _listen(self) -> None:
        with self.listener, contextlib.suppress(EOFError):
            while True:
                asking = self.listener.accept()
                request = asking.recv()
                threading.Thread(target=self._answer, args=(asking, request), daemon=True).start()

    def _answer(self, asking: Connection, request: dict[str, Any]) -> None:
        log = request.pop("log")
        with contextlib.ExitStack() as opened, contextlib.suppress(OSError):
            opened.enter_context(asking)
            out: IO[bytes]
            if log is None:  # what it says is read
                out = opened.enter_context(tempfile.TemporaryFile())
                err = opened.enter_context(tempfile.TemporaryFile())
            else:
                out = err = opened.enter_context(open(log, "ab"))
            lesson = Forked(**request, module=self._module, path=[ROOT], stdout=out, stderr=err)
            self._begun.append(lesson)
            asking.send(lesson.pid)
            ended = [lesson.wait()]
            for file in (out, err) if log is None else ():
                file.seek(0)
                ended.append(file.read())
            asking.send(ended)  # fails where the server has ended before


class Lesson:
    """The side of the server: what it needs of :class:`asyncio.subprocess.Process`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.pid: int = connection.recv()
        self.returncode: int | None = None
        self._outputs: list[bytes] = []

    async def wait(self) -> int:
        while self.returncode is None:
            if self._connection.poll():
                self.returncode, *self._outputs = self._connection.recv()
            else:
                await asyncio.sleep(0.01)
        return self.returncode

    async def communicate(self) -> tuple[bytes, bytes]:
        await self.wait()
        out, err = self._outputs
        return out, err

    def terminate(self) -> None:
        os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)


async def begin_lesson(
    *command: str, env: Mapping[str, str], stdout: IO[bytes] | int, **_: object
) -> Lesson:
    """Takes the place of :func:`asyncio.create_subprocess_exec`."""
    assert command[:4] == (sys.executable, "-P", "-m", "holdfast")
    connection = Client(os.environ[ADDRESS])
    soft, _hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    log = None if isinstance(stdout, int) else stdout.name
    request = {"arguments": command[4:], "environment": dict(env), "log": log}
    connection.send({**request, "file_bytes": soft})
    return await asyncio.to_thread(Lesson, connection)


@contextmanager
def forked_lessons() -> Iterator[None]:
    """Servers in this process fork their lessons, and what forgets, too."""
    lessons = ForkedLessons("holdfast")
    with (
        patch.dict(os.environ, {ADDRESS: str(lessons.listener.address)}),
        patch("asyncio.create_subprocess_exec", begin_lesson),
    ):
        yield
    lessons.close()


if __name__ == "__main__":
    asyncio.create_subprocess_exec = begin_lesson  # type: ignore[assignment]
    runpy.run_module("holdfast", run_name="__main__", alter_sys=True)
