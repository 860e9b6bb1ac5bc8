"""Lessons of a served memory: `holdfast learn` in a process of its own.

So questions are answered meanwhile, and a lesson survives whatever kills the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast.core.children import importable
from holdfast.core.errors import HoldfastError
from holdfast.serving.refusal import RefusalError, refusal_of
from holdfast.streams import Stream
from holdfast.streams.batches import FACTS_FILE, latest, read_batches
from holdfast.streams.python import facts_of_python
from holdfast.streams.registry import question_key
from holdfast.streams.rows import values_of

logger = logging.getLogger(__name__)

WAITING = 8  # lessons; one more is refused
_LAST_WORDS = 600  # characters


class Teacher:
    """Teaches a memory on the embedded model one lesson after another; a request waits for its own.

    learned: how many batches were learned when the server started.
    """

    def __init__(self, directory: Path, learned: int) -> None:
        self._directory, self._learned = directory, learned
        self._lock = asyncio.Lock()
        self._finishing: asyncio.Task[None] | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._lessons = 0

    @property
    def busy(self) -> bool:
        """Whether a lesson is taught or waits."""
        return self._lessons > 0

    async def begin(self) -> None:
        if len(read_batches(self._directory / FACTS_FILE)) > self._learned:
            self._finishing = asyncio.create_task(self._finish())

    async def _finish(self) -> None:
        """Learn what is on file; why that fails is told by the next lesson."""
        try:
            await self._teach(None, 0)
        except (HoldfastError, RefusalError) as error:
            logger.warning("what is on file could not be learned: %s", error)

    async def teach(self, facts: Any, paraphrases: int, *, wait: bool) -> tuple[int, Any]:
        return 200, await self._teach(facts_of_python(facts), paraphrases)

    async def _teach(self, facts: Stream | None, paraphrases: int) -> dict[str, Any]:
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
        is_new = not (self._directory / FACTS_FILE).exists()
        arguments += ["--model", "embedded"] if is_new else ["--existing"]
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
        kept = None if facts is None else self._are_on_file(facts)
        if status == 2:
            raise refusal_of(said, kept=kept)
        last = f"the lesson ended with status {status}: {said[-_LAST_WORDS:]}"
        raise RefusalError(500, last, "lesson", kept=kept)

    def _are_on_file(self, facts: Stream) -> bool:
        """Whether the list of facts has all of these, so that the next lesson learns them."""
        try:
            known = latest(read_batches(self._directory / FACTS_FILE))
        except HoldfastError:
            return False
        items = [item for task in facts.tasks for item in task.items]
        answers = {key: item.answer for key, item in known.items()}
        return all(answers.get(question_key(item.question)) == item.answer for item in items)

    async def end(self) -> None:
        await stop(self._process)
        if self._finishing is not None:
            await self._finishing


async def stop(process: asyncio.subprocess.Process | None) -> None:
    """Stop a lesson that is in progress; the next one, or `holdfast learn`, finishes it."""
    if process is not None and process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


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
