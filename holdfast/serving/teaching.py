"""Lessons of a memory that is served: each is `holdfast learn`, in a process of its own.

So questions are answered meanwhile, and a lesson survives whatever kills the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast.core.children import importable
from holdfast.core.errors import HoldfastError
from holdfast.serving.refusal import RefusalError
from holdfast.streams import Stream
from holdfast.streams.rows import values_of

WAITING = 8  # lessons; one more is refused
_LAST_WORDS = 600  # characters


class Teacher:
    """Teaches a memory one lesson after another."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None
        self._lessons = 0

    @property
    def busy(self) -> bool:
        """Whether a lesson is taught or waits."""
        return self._lessons > 0

    async def teach(self, facts: Stream | None, paraphrases: int = 0) -> dict[str, Any]:
        """Teach facts, after the lessons that wait; None: what is on file but not learned yet.

        Returns :func:`holdfast.memory.telling.lesson_values`. Raises HoldfastError when the
        command refuses them, RefusalError when too many lessons wait or the server ends.
        """
        if self._lessons >= WAITING:
            raise RefusalError(503, f"{self._lessons} lessons wait; teach again later", "busy")
        self._lessons += 1
        try:
            async with self._lock:
                return await self._learn(facts, paraphrases)
        finally:
            self._lessons -= 1

    async def _learn(self, facts: Stream | None, paraphrases: int) -> dict[str, Any]:
        arguments = ["learn", str(self._directory), *(["-"] if facts else []), "--json"]
        arguments += ["--paraphrases", str(paraphrases)] if paraphrases else []
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "holdfast", *arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C reaches only the server, which ends the lesson
            env={**os.environ, "PYTHONPATH": importable()},
        )
        out, err = await self._process.communicate(_lines(facts).encode() if facts else None)
        status = self._process.returncode
        if status == 0:
            told: dict[str, Any] = json.loads(out)
            return told
        words = err.decode(errors="replace")
        said = words[words.rfind("holdfast: ") :].removeprefix("holdfast: ").strip()
        if status == 2:
            raise HoldfastError(said)
        raise RefusalError(
            500, f"the lesson ended with status {status}: {said[-_LAST_WORDS:]}", "lesson"
        )

    async def end(self) -> None:
        """Stop the lesson in progress; the next one, or `holdfast learn`, finishes it."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()
            await self._process.wait()


def _lines(facts: Stream) -> str:
    rows = (values_of(task, item) for task in facts.tasks for item in task.items)
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def facts_in(body: object) -> tuple[Any, int]:
    """The facts of a request and how many other wordings of each are wanted.

    body: one fact, a list of facts, or an object with ``facts`` and perhaps ``paraphrases``.
    Raises HoldfastError for anything else.
    """
    count = 0
    if isinstance(body, dict) and "facts" in body:
        if strange := [key for key in body if key not in {"facts", "paraphrases"}]:
            raise HoldfastError(f'unknown key {strange[0]!r:.40}; give "facts" and "paraphrases"')
        count = body.get("paraphrases", 0)
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= 20:
            raise HoldfastError(f'"paraphrases" is {count!r:.40}; give a number from 0 to 20')
        body = body["facts"]
    if isinstance(body, dict):
        body = [body]
    if not isinstance(body, Sequence) or isinstance(body, str):
        raise HoldfastError("give a list of facts, each with a question and an answer")
    return body, count
