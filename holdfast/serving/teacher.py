"""Lessons of a served memory: they go on after the request that brought them.

Facts are on file when the response is sent. One process learns what is on file, lesson after
lesson; when it was killed, what waits is learned by the next one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import Any, Protocol, TypeVar

from holdfast.core.errors import HoldfastError, error_of
from holdfast.core.files import lock_directory
from holdfast.memory.detached import (
    learning_command,
    learning_environment,
    opened_log,
)
from holdfast.memory.memory import Memory
from holdfast.memory.outcome import Filed
from holdfast.memory.queue import cancel_lessons, waiting_lessons
from holdfast.memory.states import (
    LessonProgress,
    LessonState,
    correction_values,
    lesson_states,
)
from holdfast.serving.children import killed_by, stop, terminate
from holdfast.serving.posted import check_room
from holdfast.serving.refusal import RefusalError, refusal_of
from holdfast.streams import Stream
from holdfast.streams.load import facts_of_python

logger = logging.getLogger(__name__)
# Seconds that the process has to end by itself when the server does, which takes two at most: the
# model's last step has half a second besides.
_PATIENCE = 0.5
_EVERY = 0.2  # seconds between looks at a lesson that a request waits for


Value = TypeVar("Value")


class OnThread(Protocol):
    """The value of ``function(memory)``, called on the thread that owns the memory."""

    def __call__(self, function: Callable[[Any], Value]) -> Awaitable[Value]: ...


class Teacher:
    """Puts facts on file, and keeps a process that learns them while there are any."""

    def __init__(self, directory: Path, on_thread: OnThread) -> None:
        self._directory, self._on_thread = directory, on_thread
        self._process: asyncio.subprocess.Process | None = None
        self._learning: asyncio.Task[None] | None = None
        self._more = False  # whether facts came since it was last looked what waits
        self._ending = False
        self._failure: HoldfastError | None = None  # why no process could be started

    @property
    def busy(self) -> bool:
        """Whether a lesson is learned or waits."""
        return self._learning is not None and not self._learning.done()

    async def begin(self) -> None:
        """The server starts: what is on file and not learned yet is learned."""
        try:
            waiting = await self._waiting()
        except HoldfastError as error:  # removed since it was opened; each request is told so
            logger.warning("what is on file cannot be read: %s", error)
            return
        if waiting:
            self._start()

    async def teach(self, facts: Any, paraphrases: int, *, wait: bool) -> tuple[int, Any]:
        """Teach facts: the status and the value of the response.

        202 with the number of the lesson that waits; 200 where there is nothing to wait for.
        facts: what :func:`holdfast.streams.load.facts_of_python` takes; paraphrases: other
        wordings of each; wait: respond once they are learned. Raises HoldfastError for facts that
        are refused, RefusalError when too many lessons wait.
        """
        stream = facts_of_python(facts)
        check_room(await self._waiting(), stream, paraphrases)
        # What is on file is learned, also where the client leaves meanwhile.
        filed, names = await asyncio.shield(asyncio.create_task(self._filed(stream, paraphrases)))
        if not filed.lessons:
            return 200, _values(filed, "learned")
        if not wait:
            return 202, _values(filed, "waiting")
        return 200, await self._learned(filed, names)

    async def _filed(self, stream: Stream, paraphrases: int) -> tuple[Filed, list[str]]:
        """Put facts on file and let them be learned; also the names of their lessons."""

        def write(memory: Memory) -> tuple[Filed, list[str]]:
            filed = memory.write_facts(memory.worded(stream, paraphrases))
            return filed, [memory.tasks[number - 1].name for number in filed.lessons]

        try:
            filed, names = await self._on_thread(write)
        except HoldfastError as error:
            raise refusal_of(error, kept=False) from None
        except RefusalError as refusal:  # it waited for the model's thread when the server ended
            told = "the server ends"
            raise RefusalError(refusal.status, told, refusal.code, kept=False) from None
        if filed.lessons:
            self._start()
        return filed, names

    async def cancel(self, numbers: Collection[int]) -> None:
        """Cancel lessons that are not learned; the later ones move up."""
        await asyncio.to_thread(cancel_lessons, self._directory, numbers)
        if await self._waiting():
            self._start()

    def ending(self) -> None:
        """The server begins to end: stop the lesson, and tell whoever waits for one."""
        self._ending = True
        terminate(self._process)

    async def end(self) -> None:
        """The server ends: the lesson in progress is stopped, and the next one finishes it."""
        self.ending()
        await stop(self._process, _PATIENCE)
        if self._learning is not None:
            await self._learning

    async def _waiting(self) -> list[LessonState]:
        return await asyncio.to_thread(waiting_lessons, self._directory)

    def _start(self) -> None:
        self._more = True
        if not self.busy:
            self._learning = asyncio.create_task(self._learn())

    async def _learn(self) -> None:
        """Let processes learn what waits; why none could be started is told to who waits."""
        self._failure = None
        while self._more and not self._ending:
            self._more = False
            try:
                await self._learn_waiting()
            except (HoldfastError, OSError) as error:
                logger.warning("what is on file could not be learned: %s", error)
                self._failure = HoldfastError(f"no lesson could be begun ({error})")

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
        if self._ending:  # meanwhile
            terminate(self._process)
        return await self._process.wait()

    def _record_kill(self, number: int, signal: int) -> None:
        """Say in the lesson's state that its process was killed twice."""
        told = f"its process was killed twice: it {killed_by(-signal)}"
        logger.warning("lesson %d: %s", number, told)
        try:
            with lock_directory(self._directory):
                if any(one.number == number for one in lesson_states(self._directory)):
                    progress = LessonProgress(self._directory)
                    progress.begin(number)
                    progress.failed(told)
        except HoldfastError:
            pass

    async def _learned(self, filed: Filed, names: Collection[str]) -> dict[str, Any]:
        """What was learned, once it is. Raises RefusalError when a lesson fails or is cancelled."""
        while True:
            states = await asyncio.to_thread(lesson_states, self._directory)
            own = [state for state in states if state.name in names]
            if len(own) < len(names):
                raise RefusalError(409, "the lesson was cancelled", "cancelled")
            if all(state.state == "learned" for state in own):
                missed = [question for state in own for question in state.missed]
                return {**_values(filed, "learned"), "missed": missed}
            if self._ending:
                told = "the server ends; the facts are on file, and are learned at its next start"
                raise RefusalError(503, told, "ending")
            failed = next((state for state in states if state.state == "failed"), None)
            if failed is not None and not self.busy:
                why = f"lesson {failed.number} failed: {failed.reason}"
                raise _failed(error_of(failed.code, why[:600]))
            if not self.busy:
                raise _failed(self._failure or HoldfastError("the lesson was stopped"))
            await asyncio.sleep(_EVERY)


def _failed(error: HoldfastError) -> RefusalError:
    """The refusal for a lesson that has failed; its facts are on file."""
    refusal = refusal_of(error, kept=True)
    return RefusalError(500, str(error), "lesson", kept=True) if refusal.status == 400 else refusal


def _values(filed: Filed, state: str) -> dict[str, Any]:
    """What a response says of facts that were put on file."""
    return {
        "lesson": filed.lessons[-1] if filed.lessons else None,
        "lessons": list(filed.lessons),
        "state": state,
        "repeated": [item.question for item in filed.repeated],
        "corrected": correction_values(filed.corrected),
    }
