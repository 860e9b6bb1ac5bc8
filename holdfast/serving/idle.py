"""Consolidate a served memory while nobody asks, and stop when somebody does.

The work is `holdfast consolidate` in a process of its own, which
goes on from its progress after it was stopped or killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from pathlib import Path

from holdfast.core.errors import HoldfastError
from holdfast.memory.detached import (
    consolidating_command,
    learning_environment,
    opened_log,
)
from holdfast.memory.listing import signatures
from holdfast.memory.record import LOG_FILE, read_record
from holdfast.memory.states import lesson_states
from holdfast.serving.children import stop

_EVERY = 0.5  # seconds between looks
_PATIENCE = 0.5  # seconds that the process has to end when the server does


class IdleConsolidation:
    """Consolidates a memory once nobody has asked or taught for some time.

    A question, or a lesson to be learned, ends the process at once. Nothing is done where no lesson
    is new since the last time, also where lessons kept their adapters then; what failed is not
    tried again before something new is learned.
    """

    def __init__(self, directory: Path, seconds: float, say: Callable[[str], None]) -> None:
        """seconds: without a request; say: takes a line at the begin and at the end."""
        self._directory, self._seconds, self._say = directory, seconds, say
        self._asked = time.monotonic()
        self._busy: Callable[[], bool] = lambda: False
        self._settled: object = None  # the signatures of files with which nothing is left to do
        self._watching: asyncio.Task[None] | None = None

    def asked(self) -> None:
        """A request came that is a question or teaches."""
        self._asked = time.monotonic()

    async def begin(self, busy: Callable[[], bool]) -> None:
        """The server starts. busy: whether an answer is being written."""
        self._busy = busy
        self.asked()
        self._watching = asyncio.create_task(self._watch())

    async def end(self) -> None:
        """The server ends: stop the process, which the next one continues."""
        if self._watching is not None:
            self._watching.cancel()  # it asks the process to end, which keeps what is done
            await asyncio.wait({self._watching}, timeout=_PATIENCE)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_EVERY)
            if self._is_idle() and await asyncio.to_thread(self._has_new_lessons):
                seen = signatures(self._directory)
                try:
                    done = await self._consolidate()
                except (HoldfastError, OSError) as error:
                    self._say(f"consolidation failed: {error}")
                    done = False
                if not done:
                    self._settled = seen

    def _is_idle(self) -> bool:
        if self._busy():
            self.asked()
        return time.monotonic() - self._asked >= self._seconds

    def _has_new_lessons(self) -> bool:
        """Whether lessons are learned that were not learned at once, and none is to be learned."""
        seen = signatures(self._directory)
        if seen == self._settled or seen[0] is None:
            return False
        try:
            if self._waits():
                return False
            new = not read_record(self._directory).is_consolidated
        except HoldfastError:  # damaged; who asks is told
            new = False
        if not new:
            self._settled = seen
        return new

    def _waits(self) -> bool:
        return any(not state.ended for state in lesson_states(self._directory))

    def _is_needed(self, seen: object) -> bool:
        """Whether a question came, or a lesson where the files were as ``seen`` before."""
        if not self._is_idle():
            return True
        with contextlib.suppress(HoldfastError):
            return signatures(self._directory) != seen and self._waits()
        return False

    async def _consolidate(self) -> bool:
        """Run the process until it ends or is needed no more; False where it failed."""
        seen = signatures(self._directory)
        self._say("nobody asks: the facts of all lessons are put into one adapter")
        with opened_log(self._directory) as log:
            process = await asyncio.create_subprocess_exec(
                *consolidating_command(self._directory),
                env=learning_environment(),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C reaches only the server, which ends it
            )
        stopped = False
        try:
            while not (stopped or await _ended(process)):
                stopped = await asyncio.to_thread(self._is_needed, seen)
        finally:
            await stop(process)
        if process.returncode == 0:
            lessons = read_record(self._directory).lessons
            count = len({lesson.file for lesson in lessons})
            self._say(f"{len(lessons)} lessons are answered from {count} adapters now")
        elif stopped:
            self._say("consolidation was stopped by a request; it goes on when nobody asks")
        else:
            self._say(f"consolidation failed; {self._directory / LOG_FILE} says why")
        return stopped or process.returncode == 0


async def _ended(process: asyncio.subprocess.Process) -> bool:
    """Whether the process has ended, after a moment at most."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), _EVERY)
    return process.returncode is not None
