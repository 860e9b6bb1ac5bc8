"""Consolidate a served memory while nobody asks, and stop when somebody does.

The work is `holdfast consolidate` in a process of its own, which goes on from its progress after
it was stopped or killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from pathlib import Path

from holdfast.core.errors import HoldfastError
from holdfast.memory.detached import consolidating_command
from holdfast.memory.listing import signatures
from holdfast.memory.queue import waiting_lessons
from holdfast.memory.record import LOG_FILE, read_record
from holdfast.serving.teacher import begin, stop

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

    def begin(self, busy: Callable[[], bool]) -> None:
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
            seen = signatures(self._directory)
            if seen[0] is None or seen == self._settled or not self._is_idle():
                continue  # there is no memory yet, or nothing is new, or somebody asks
            try:
                if await asyncio.to_thread(self._waits):
                    continue  # the lesson comes first
                record = await asyncio.to_thread(read_record, self._directory)
                is_settled = record.is_consolidated or not await self._consolidate(seen)
            except (HoldfastError, OSError) as error:
                self._say(f"consolidation failed: {error}")
                is_settled = True
            if is_settled:
                self._settled = seen

    def _is_idle(self) -> bool:
        if self._busy():
            self.asked()
        return time.monotonic() - self._asked >= self._seconds

    def _waits(self) -> bool:
        """Whether a lesson is to be learned."""
        return any(not state.ended for state in waiting_lessons(self._directory))

    def _is_needed(self, seen: object) -> bool:
        """Whether a question came, or a lesson where the files were as ``seen`` before."""
        is_new = signatures(self._directory) != seen
        return not self._is_idle() or (is_new and self._waits())

    async def _consolidate(self, seen: object) -> bool:
        """Run the process until it ends or is needed no more; False where it failed."""
        self._say("nobody asks: the facts of all lessons are put into one adapter")
        process = await begin(self._directory, consolidating_command(self._directory))
        is_stopped = False
        try:
            while process.returncode is None and not is_stopped:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(process.wait(), _EVERY)
                    continue
                is_stopped = await asyncio.to_thread(self._is_needed, seen)
        finally:
            await stop(process)
        if process.returncode == 0:
            lessons = read_record(self._directory).lessons
            count = len({lesson.file for lesson in lessons})
            self._say(f"{len(lessons)} lessons are answered from {count} adapters now")
        elif is_stopped:
            self._say("consolidation was stopped by a request; it goes on when nobody asks")
        else:
            self._say(f"consolidation failed; {self._directory / LOG_FILE} says why")
        return is_stopped or process.returncode == 0
