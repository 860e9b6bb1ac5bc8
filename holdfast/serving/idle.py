"""Consolidate a served memory while nobody asks, by `holdfast consolidate` in another process."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from pathlib import Path

from holdfast.core.errors import HoldfastError
from holdfast.memory.detached import consolidating_command
from holdfast.memory.record import LOG_FILE, read_record, signatures
from holdfast.memory.states import waiting_lessons
from holdfast.serving.children import PATIENCE, begin_logged, stop

_EVERY = 0.5  # seconds between checks


class IdleConsolidation:
    """Consolidates a memory once nobody has asked or taught for some seconds.

    A question, or a lesson to be learned, stops the process; the next one continues. Nothing is
    done if no lesson is new since the last consolidation, even if some lessons kept their adapters
    then; after a failure, it is tried again only once the memory's files have changed.
    """

    def __init__(self, directory: Path, seconds: float, say: Callable[[str], None]) -> None:
        self._directory, self._seconds, self._say = directory, seconds, say
        self._asked = time.monotonic()
        self._busy: Callable[[], bool] = lambda: False
        self._settled: object = None  # signatures of the files if nothing is left to do
        self._watching: asyncio.Task[None] | None = None

    def asked(self) -> None:
        """Note that somebody asks or teaches."""
        self._asked = time.monotonic()

    def begin(self, busy: Callable[[], bool]) -> None:
        """The server starts. busy: whether a question waits or is being answered."""
        self._busy = busy
        self.asked()
        self._watching = asyncio.create_task(self._watch())

    async def end(self) -> None:
        if self._watching is not None:
            self._watching.cancel()  # then the process is asked to end, and keeps its progress
            await asyncio.wait({self._watching}, timeout=PATIENCE)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_EVERY)
            seen = signatures(self._directory)
            if seen[0] is None or seen == self._settled or not self._is_idle():
                continue  # there is no memory yet, or nothing is new, or somebody asks
            try:
                if await asyncio.to_thread(self._lesson_waits):
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

    def _lesson_waits(self) -> bool:
        return any(not state.ended for state in waiting_lessons(self._directory))

    def _must_stop(self, seen: object) -> bool:
        """Whether to stop: a question came, or a lesson waits and files differ from ``seen``."""
        is_new = signatures(self._directory) != seen
        return not self._is_idle() or (is_new and self._lesson_waits())

    async def _consolidate(self, seen: object) -> bool:
        """Run the process until it ends or has to be stopped; False if it failed."""
        self._say("nobody asks: the facts of all lessons are put into one adapter")
        process = await begin_logged(self._directory, consolidating_command(self._directory))
        is_stopped = False
        try:
            while process.returncode is None and not is_stopped:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(process.wait(), _EVERY)
                    continue
                is_stopped = await asyncio.to_thread(self._must_stop, seen)
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
