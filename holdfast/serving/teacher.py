"""Lessons of a served memory, which are learned after the request that brought them.

Facts are on file when the response is sent. One process learns what is on file; if it is killed,
the next one learns what still waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast.core.errors import HoldfastError, error_of
from holdfast.core.files import is_locked, lock_directory
from holdfast.core.processes import manner
from holdfast.memory.detached import forgetting_command, learning_command
from holdfast.memory.forgetting import what_goes
from holdfast.memory.memory import Memory
from holdfast.memory.plan import Filed
from holdfast.memory.record import signatures
from holdfast.memory.states import (
    LessonProgress,
    LessonState,
    cancel_lessons,
    correction_values,
    lesson_states,
    waiting_lessons,
)
from holdfast.memory.wordings import GIVEN, left_out_wordings
from holdfast.serving.children import PATIENCE, begin, begin_logged, stop, terminate
from holdfast.serving.refusal import RefusalError, reading_files, refusal_of
from holdfast.streams import Stream
from holdfast.streams.batches import latest
from holdfast.streams.load import facts_of_python

logger = logging.getLogger(__name__)
LESSONS = 32  # that may wait; a lesson takes seconds to minutes
FACTS = 1000  # that may wait in all lessons, other wordings included
_EVERY = 0.2  # seconds between checks of a lesson that a request waits for

# Returns the value of ``function(memory)``, called on the thread that owns the memory.
OnThread = Callable[[Callable[[Memory], Any]], Awaitable[Any]]


def facts_in(body: object) -> tuple[Any, int]:
    """The facts of a request and how many other wordings of each are wanted.

    body: one fact, a list of facts, or an object with ``facts`` and perhaps ``paraphrases``.
    """
    count = 0
    if isinstance(body, dict) and "facts" in body:
        if unknown := [key for key in body if key not in {"facts", "paraphrases"}]:
            raise HoldfastError(f'unknown key {unknown[0]!r:.40}; give "facts" and "paraphrases"')
        count = body.get("paraphrases", 0)
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= 20:
            raise HoldfastError(f'"paraphrases" is {count!r:.40}; give a number from 0 to 20')
        body = body["facts"]
    if isinstance(body, dict):
        body = [body]
    if not isinstance(body, list):
        raise HoldfastError("give a list of facts, each with a question and an answer")
    return body, count


def check_room(waiting: Sequence[LessonState], posted: Stream, paraphrases: int) -> None:
    """Raise RefusalError for too many lessons or facts, alone or with those that wait."""
    lessons, before = len(posted.tasks), sum(state.facts for state in waiting)
    facts = sum(
        1 + max(paraphrases, len(item.details.get(GIVEN, ())))
        for task in posted.tasks
        for item in task.items
    )
    most = f"at most {LESSONS} with {FACTS}"
    if lessons > LESSONS or facts > FACTS:
        raise RefusalError(
            413,
            f"{lessons} lessons with {facts} facts and wordings, and {most} may wait; facts of one "
            "task are one lesson: teach fewer at once, or run holdfast learn",
            "too_large",
        )
    if len(waiting) + lessons > LESSONS or before + facts > FACTS:
        raise RefusalError(
            503,
            f"{len(waiting)} lessons with {before} facts wait, and {most} may; teach again later, "
            "or cancel one with DELETE /lessons/N",
            "busy",
        )


class Teacher:
    """Puts facts on file, and runs a process that learns them while any wait."""

    def __init__(self, directory: Path, on_thread: OnThread) -> None:
        self._directory, self._on_thread = directory, on_thread
        self._process: asyncio.subprocess.Process | None = None
        self._learning: asyncio.Task[None] | None = None
        self._forgetting: asyncio.Task[dict[str, Any]] | None = None
        self._forgetter: asyncio.subprocess.Process | None = None
        self._more = False  # whether to check again what waits
        self._ending = False
        self._failure: HoldfastError | None = None  # why no process could be started

    @property
    def busy(self) -> bool:
        """Whether a lesson is being learned or waits to be."""
        return self._learning is not None and not self._learning.done()

    def start(self) -> None:
        """Learn what is on file but not learned yet, if anything."""
        self._more = True
        if not self.busy:
            self._learning = asyncio.create_task(self._learn())

    async def teach(self, facts: Any, paraphrases: int, *, wait: bool) -> tuple[int, Any]:
        """Teach facts; 202, or 200 if there is nothing to wait for, and the response's value.

        facts: what :func:`holdfast.streams.load.facts_of_python` takes; paraphrases: other
        wordings of each; wait: respond once they are learned.
        """
        stream = facts_of_python(facts)
        with reading_files(kept=False):
            waiting = await asyncio.to_thread(waiting_lessons, self._directory)
        check_room(waiting, stream, paraphrases)
        # Shielded, so that what is on file is learned even if the client leaves.
        filed, names = await asyncio.shield(asyncio.create_task(self._filed(stream, paraphrases)))
        if not filed.lessons:
            return 200, _values(filed, "learned")
        if not wait:
            return 202, _values(filed, "waiting")
        missed = await self._learned(names)
        return 200, {**_values(filed, "learned"), "missed": missed}

    async def _filed(self, stream: Stream, paraphrases: int) -> tuple[Filed, list[str]]:
        """Put facts on file and start to learn them; also the names of their lessons."""
        has_begun = False

        def write(memory: Memory) -> tuple[Filed, list[str]]:
            nonlocal has_begun
            has_begun = True
            left_out = left_out_wordings(stream, latest(memory.tasks).values())
            filed = memory.write_facts(memory.worded(stream, paraphrases))
            filed = replace(filed, notices=(*left_out, *filed.notices))
            return filed, [memory.tasks[number - 1].name for number in filed.lessons]

        try:
            filed, names = await self._on_thread(write)
        except HoldfastError as error:
            raise refusal_of(error, kept=False) from None
        except RefusalError as refusal:  # the server ends
            again = "; send the facts again once it runs, as they may not be kept"
            why = "the server ends" + (again if has_begun else "")
            kept = None if has_begun else False
            raise RefusalError(refusal.status, why, refusal.code, kept=kept) from None
        if filed.lessons:
            self.start()
        return filed, names

    async def cancel(self, numbers: Collection[int] | None) -> list[LessonState]:
        """Cancel lessons that are not learned, all of them for None; the later ones move up."""
        cancelled = await asyncio.to_thread(cancel_lessons, self._directory, numbers)
        self.start()
        return cancelled

    async def forget(self, questions: Sequence[str]) -> dict[str, Any]:
        """Forget facts, in a process of its own; questions are answered meanwhile.

        Returns the fields of :class:`holdfast.memory.forgetting.Forgetting`.
        """
        with reading_files():
            waiting = await asyncio.to_thread(waiting_lessons, self._directory)
        await self._on_thread(lambda memory: what_goes(memory, questions))
        if self._learning is not None and not waiting:
            await asyncio.wait([self._learning])  # its process has learned all, and is ending
        forgetting = self._forgetting is not None and not self._forgetting.done()
        if self.busy or forgetting or is_locked(self._directory):
            message = "a lesson is being learned, or facts forgotten; forget again after that"
            raise RefusalError(503, message, "busy")
        self._forgetting = asyncio.create_task(self._forgotten(questions))
        # Shielded, so that facts are forgotten even if the client leaves.
        return await asyncio.shield(self._forgetting)

    async def _forgotten(self, questions: Sequence[str]) -> dict[str, Any]:
        command, pipe = forgetting_command(self._directory, questions), asyncio.subprocess.PIPE
        process = self._forgetter = await begin(command, pipe, pipe)
        out, err = await process.communicate()
        if process.returncode:
            lines = err.decode(errors="replace").split("\n")
            why = next(
                (line for line in reversed(lines) if line.strip()), manner(process.returncode)
            )
            if self._ending:
                raise RefusalError(503, "the server ends", "forgetting")
            status = 409 if process.returncode == 2 else 500  # 2: such as a fact taught meanwhile
            kind = json.loads(out.strip() or b"{}").get("code")
            error = error_of(kind, why.removeprefix("holdfast: "))
            raise refusal_of(error, status=status, code="forgetting")
        outcome: dict[str, Any] = json.loads(out)
        return outcome

    def ending(self) -> None:
        """The server begins to end: ask processes to end; waiting requests get an error."""
        self._ending = True
        terminate(self._process)
        terminate(self._forgetter)

    async def end(self) -> None:
        """The server ends: wait for the processes, or kill them; the next server continues."""
        self.ending()
        await stop(self._process, PATIENCE)
        if self._learning is not None:
            await self._learning
        await stop(self._forgetter, PATIENCE)
        if self._forgetting is not None:
            await asyncio.wait([self._forgetting])

    async def _learn(self) -> None:
        """Run learning processes until nothing waits, one fails, or two are killed in a lesson."""
        self._failure = None
        killed_in = 0  # the lesson in which the last process was killed
        while self._more and not self._ending:
            self._more = False
            try:
                waiting = await asyncio.to_thread(waiting_lessons, self._directory)
                status = await self._process_ended() if waiting else 0
            except (HoldfastError, OSError) as error:
                logger.warning("what is on file could not be learned: %s", error)
                self._failure = HoldfastError(f"no lesson could be begun ({error})")
                continue
            # Why a process failed, with a status above 0, is in the lesson's state and in the log.
            first = waiting[0].number if waiting else 0
            if status < 0 and first == killed_in:
                await asyncio.to_thread(self._record_kill, first, status)
            elif waiting and status <= 0:
                self._more = True
            killed_in = first if status < 0 else 0

    async def _process_ended(self) -> int:
        """Run the process that learns; its exit status, negative for a signal."""
        self._process = await begin_logged(self._directory, learning_command(self._directory))
        if self._ending:  # meanwhile
            terminate(self._process)
        return await self._process.wait()

    def _record_kill(self, number: int, status: int) -> None:
        reason = f"its process was twice {manner(status)}"
        logger.warning("lesson %d: %s", number, reason)
        with contextlib.suppress(HoldfastError), lock_directory(self._directory):
            if any(state.number == number for state in lesson_states(self._directory)):
                progress = LessonProgress(self._directory)
                progress.begin(number)
                progress.failed(reason)

    async def _learned(self, names: Collection[str]) -> list[str]:
        """Wait until lessons are learned; the questions of theirs that the weights miss."""
        seen: object = None
        while True:
            is_over = not self.busy  # read before the states, which are then final
            now = signatures(self._directory)
            if now == seen and not (is_over or self._ending):
                await asyncio.sleep(_EVERY)
                continue
            seen = now
            states = await asyncio.to_thread(lesson_states, self._directory)
            taught = [state for state in states if state.name in names]
            if len(taught) < len(names):
                raise RefusalError(409, "the lesson was cancelled", "cancelled")
            if all(state.state == "learned" for state in taught):
                return [question for state in taught for question in state.missed]
            if self._ending:
                why = "the server ends; the facts are on file, and are learned at its next start"
                raise RefusalError(503, why, "ending")
            if is_over:
                failed = next((state for state in states if state.state == "failed"), None)
                if failed is None:
                    error = self._failure or HoldfastError("the lesson was stopped")
                else:
                    reason = f"lesson {failed.number} failed: {failed.reason}"
                    error = error_of(failed.code, reason[:600])
                raise refusal_of(error, kept=True, status=500, code="lesson")


def _values(filed: Filed, state: str) -> dict[str, Any]:
    return {
        "lesson": filed.lessons[-1] if filed.lessons else None,
        "lessons": list(filed.lessons),
        "state": state,
        "repeated": [item.question for item in filed.repeated],
        "corrected": correction_values(filed.corrected),
        "notices": list(filed.notices),
    }
