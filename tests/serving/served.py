"""`holdfast serve` in a process of its own, and requests to it."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from tests.forked import Forked
from tests.serving.forked_lessons import ADDRESS, ROOT, ForkedLessons

JSON = {"Content-Type": "application/json"}


@dataclass
class Served:
    """A server. url: without a path; key: what it printed, if any; errors: what it says there."""

    process: Forked | subprocess.Popen[str]
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
        connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=120)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def post(self, path: str, values: Any) -> tuple[int, Any]:
        return self.request("POST", path, json.dumps(values).encode())

    def ask(self, question: str) -> dict[str, Any]:
        status, told = self.post("/v1/completions", {"model": "m", "prompt": question})
        assert status == 200, told
        return told["choices"][0]

    def facts(self) -> dict[str, Any]:
        return self.request("GET", "/facts")[1]


@contextmanager
def serving(
    memory: Path,
    *options: str,
    anew: bool = False,
    lesson: str = "holdfast",
    **environment: str,
) -> Iterator[Served]:
    """Serve a memory until the block ends; the server and its lesson are killed then.

    anew: by an interpreter of its own, as users start it, which takes some seconds to import; so
    does each of its lessons then. lesson: the module that each lesson runs otherwise.
    """
    arguments = ["serve", str(memory), "--port", "0", *options]
    lessons = ForkedLessons(lesson)
    environment = {**os.environ, **environment, ADDRESS: lessons.address}
    process: Forked | subprocess.Popen[str]
    with tempfile.TemporaryFile("w+") as errors:
        if anew:
            process = subprocess.Popen(
                [sys.executable, "-m", "holdfast", *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        else:
            process = Forked(
                arguments,
                module="tests.serving.forked_lessons",
                environment=environment,
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
