"""Lessons of a served memory on a chat model: they go on after the request that brought them.

Facts are on file when the response is sent. One process learns what is on file, lesson after
lesson; when it was killed, what waits is learned by the next one.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.core.files import FOR_EVER, alone
from holdfast.memory.chat.detached import (
    learning_command,
    learning_environment,
    opened_log,
)
from holdfast.memory.chat.outcome import Filed
from holdfast.memory.chat.states import (
    LessonProgress,
    LessonState,
    correction_values,
    lesson_states,
)
from holdfast.serving.refusal import RefusalError, refusal_of
from holdfast.serving.service import OnThread
from holdfast.serving.teaching import stop
from holdfast.streams.python import facts_of_python

logger = logging.getLogger(__name__)
_EVERY = 0.2  # seconds between looks at a lesson that a request waits for
WAITING = 256  # lessons; one more is refused


class BackgroundTeacher:
    """Puts facts on file, and keeps a process that learns them while there are any."""

    def __init__(self, directory: Path, on_thread: OnThread) -> None:
        self._directory, self._on_thread = directory, on_thread
        self._process: asyncio.subprocess.Process | None = None
        self._learning: asyncio.Task[None] | None = None
        self._ending = False
        self._failure: HoldfastError | None = None  # why no process could be started

    @property
    def busy(self) -> bool:
        """Whether a lesson is learned or waits."""
        return self._learning is not None and not self._learning.done()

    async def begin(self) -> None:
        if await self._waiting():
            self._start()

    async def teach(self, facts: Any, paraphrases: int, *, wait: bool) -> tuple[int, Any]:
        """202 with the number of the lesson that waits; 200 where there is nothing to wait for."""
        stream = facts_of_python(facts)
        if len(await self._waiting()) >= WAITING:
            raise RefusalError(503, f"{WAITING} lessons wait; teach again later", "busy")
        try:
            filed = await self._on_thread(
                lambda memory: memory.write_facts(memory.worded(stream, paraphrases))
            )
        except HoldfastError as error:
            raise refusal_of(error, kept=False) from None
        if not filed.lessons:
            return 200, _values(filed, "learned")
        self._start()
        if not wait:
            return 202, _values(filed, "waiting")
        return 200, await self._learned(filed)

    async def end(self) -> None:
        self._ending = True
        await stop(self._process)
        if self._learning is not None:
            await self._learning

    async def _waiting(self) -> list[LessonState]:
        states = await asyncio.to_thread(lesson_states, self._directory)
        return [state for state in states if state.state != "learned"]

    def _start(self) -> None:
        if not self.busy:
            self._learning = asyncio.create_task(self._learn())

    async def _learn(self) -> None:
        """Let processes learn what waits; why none could be started is told to who waits."""
        self._failure = None
        try:
            await self._learn_waiting()
        except HoldfastError as error:
            logger.warning("what is on file could not be learned: %s", error)
            self._failure = error

    async def _learn_waiting(self) -> None:
        """Let a process learn until nothing waits, it fails, or two in a row leave nothing."""
        before = 0
        while (waiting := await self._waiting()) and not self._ending:
            first = waiting[0].number
            status = await self._process_ended()
            if status > 0 and not self._ending:
                return  # why is in the lesson's state, and in the log
            if status < 0 and first == before:
                await asyncio.to_thread(self._record_kill, first, -status)
                return
            before = first

    async def _process_ended(self) -> int:
        """Run the process that learns; its exit status, negative for a signal."""
        with opened_log(self._directory) as log:
            self._process = await asyncio.create_subprocess_exec(
                *learning_command(self._directory),
                env=learning_environment(),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C reaches only the server, which ends the lesson
            )
        return await self._process.wait()

    def _record_kill(self, number: int, signal: int) -> None:
        """Say in the lesson's state that its process was killed twice."""
        told = f"its process was killed twice (signal {signal}); is there too little memory?"
        logger.warning("lesson %d: %s", number, told)
        try:
            with alone(self._directory, patience=FOR_EVER):
                if any(one.number == number for one in lesson_states(self._directory)):
                    progress = LessonProgress(self._directory)
                    progress.begin(number)
                    progress.failed(told)
        except HoldfastError:
            pass

    async def _learned(self, filed: Filed) -> dict[str, Any]:
        """What was learned, once it is. Raises RefusalError when a lesson fails."""
        while True:
            states = await asyncio.to_thread(lesson_states, self._directory)
            own = [state for state in states if state.number in filed.lessons]
            if all(state.state == "learned" for state in own):
                missed = [question for state in own for question in state.missed]
                return {**_values(filed, "learned"), "missed": missed}
            failed = next((state for state in states if state.state == "failed"), None)
            if failed is not None and not self.busy:
                raise _failed(f"lesson {failed.number} failed: {failed.reason}")
            if not self.busy:
                raise _failed(str(self._failure or "the lesson was stopped"))
            await asyncio.sleep(_EVERY)


def _failed(told: str) -> RefusalError:
    """The refusal for a lesson that has failed; its facts are on file."""
    refusal = refusal_of(told[:600], kept=True)
    return RefusalError(500, told[:600], "lesson", kept=True) if refusal.status == 400 else refusal


def _values(filed: Filed, state: str) -> dict[str, Any]:
    """What a response says of facts that were put on file."""
    return {
        "lesson": filed.lessons[-1] if filed.lessons else None,
        "lessons": list(filed.lessons),
        "state": state,
        "repeated": [item.question for item in filed.repeated],
        "corrected": correction_values(filed.corrected),
    }
