"""Lessons of a served memory: `holdfast learn` in a process of its own.

So questions are answered meanwhile, and a lesson survives whatever kills the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from holdfast.core.children import importable
from holdfast.core.errors import HoldfastError, NoSpaceError
from holdfast.memory.chat.states import LessonState, questions_of
from holdfast.memory.queue import cancel_lessons, waiting_lessons
from holdfast.serving.posted import check_room
from holdfast.serving.refusal import RefusalError, refusal_of
from holdfast.streams import Stream
from holdfast.streams.batches import FACTS_FILE, latest, read_batches
from holdfast.streams.python import facts_of_python
from holdfast.streams.registry import question_key
from holdfast.streams.rows import values_of

logger = logging.getLogger(__name__)

WAITING = 8  # requests; one more is refused
_LAST_WORDS = 600  # characters
_PATIENCE = 1.0  # seconds that a process has to end by itself when the server does


@dataclass(eq=False)
class _Post:
    """Facts that are taught together, None for what is on file; it waits for its turn.

    on_file: how many batches were on file when its turn came, None before.
    """

    facts: Stream | None
    on_file: int | None = None
    cancelled: bool = False


class Teacher:
    """Teaches a memory on the embedded model one lesson after another; a request waits for its own.

    Where its client leaves before the turn came, nothing is taught. learned: how many batches were
    learned when the server started.
    """

    def __init__(self, directory: Path, learned: int) -> None:
        self._directory, self._learned = directory, learned
        self._turn = asyncio.Lock()
        self._posts: dict[_Post, asyncio.Task[dict[str, Any]]] = {}
        self._finishing: asyncio.Task[None] | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._cancelling: list[tuple[Collection[int], asyncio.Future[None]]] = []
        self._ending = False

    @property
    def busy(self) -> bool:
        """Whether a lesson is taught or waits."""
        return bool(self._posts)

    async def begin(self) -> None:
        if self._count() > self._learned:
            self._finishing = asyncio.create_task(self._finish())

    async def _finish(self) -> None:
        """Learn what is on file; why that fails is told by the next lesson."""
        try:
            await self._taught(_Post(None), 0)
        except (HoldfastError, RefusalError) as error:
            if not self._ending:
                logger.warning("what is on file could not be learned: %s", error)

    def _count(self) -> int:
        return len(read_batches(self._directory / FACTS_FILE))

    async def teach(self, facts: Any, paraphrases: int, *, wait: bool) -> tuple[int, Any]:
        stream = facts_of_python(facts)
        on_file = await asyncio.to_thread(waiting_lessons, self._directory)
        check_room([*on_file, *self.queued(self._count())], stream, paraphrases)
        if len(self._posts) >= WAITING:
            raise RefusalError(503, f"{len(self._posts)} lessons wait; teach again later", "busy")
        return 200, await self._taught(_Post(stream), paraphrases)

    async def _taught(self, post: _Post, paraphrases: int) -> dict[str, Any]:
        """Teach facts, after those that wait; None: what is on file but not learned yet.

        Returns :func:`holdfast.memory.telling.lesson_values`. Raises HoldfastError when the
        command refuses them, RefusalError when the lesson is cancelled or the server ends.
        """
        task = asyncio.create_task(self._in_turn(post, paraphrases))
        self._posts[post] = task
        task.add_done_callback(lambda _: self._posts.pop(post, None))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if self._ending:
                told = "the server ends before the facts were taken; teach them again"
                raise RefusalError(503, told, "ending") from None
            if post.cancelled:
                raise _cancelled() from None
            if post.on_file is None:
                task.cancel()
            raise

    async def _in_turn(self, post: _Post, paraphrases: int) -> dict[str, Any]:
        async with self._turn:
            post.on_file = self._count()
            return await self._learn(post, paraphrases)

    async def _learn(self, post: _Post, paraphrases: int) -> dict[str, Any]:
        status, out, err = await self._run(post.facts, paraphrases)
        while self._cancelling and not self._ending:  # it was stopped for that
            waiting = await asyncio.to_thread(self._cancel_on_file)
            if not waiting:
                if status == 0:
                    break  # it was learned before
                raise _cancelled()
            status, out, err = await self._run(None, 0)
        if status == 0:
            told: dict[str, Any] = json.loads(out)
            return told
        if self._ending:
            kept = self._count() > (post.on_file or 0)
            then = "are on file, and are learned at its next start" if kept else "were not taken"
            raise RefusalError(503, f"the server ends; the facts {then}", "ending")
        said = " ".join(err.rpartition("holdfast: ")[2].split())[-_LAST_WORDS:]
        on_file = None if post.facts is None else self._are_on_file(post.facts)
        if status == 2:
            raise refusal_of(said, kept=on_file)
        why = killed_by(status) if status < 0 else f"ended with status {status}: {said}"
        raise RefusalError(500, f"the lesson {why}", "lesson", kept=on_file)

    def _are_on_file(self, facts: Stream) -> bool:
        """Whether the list of facts has all of these, so that the next lesson learns them."""
        try:
            known = latest(read_batches(self._directory / FACTS_FILE))
        except HoldfastError:
            return False
        items = [item for task in facts.tasks for item in task.items]
        answers = {key: item.answer for key, item in known.items()}
        return all(answers.get(question_key(item.question)) == item.answer for item in items)

    async def _run(self, facts: Stream | None, paraphrases: int) -> tuple[int, str, str]:
        """Run the process that learns: its exit status, negative for a signal, and what it said."""
        # Whole, since a name like -x would be read as an option.
        arguments = ["learn", str(self._directory.resolve()), *(["-"] if facts else []), "--json"]
        is_new = not (self._directory / FACTS_FILE).exists()
        arguments += ["--model", "embedded"] if is_new else ["--existing"]
        arguments += ["--paraphrases", str(paraphrases)] if paraphrases else []
        with _file_of(facts) as given:  # a pipe breaks where the process is killed
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "holdfast", *arguments),
                stdin=given,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,  # Ctrl-C reaches only the server, which ends the lesson
                env={**os.environ, "PYTHONPATH": importable()},
            )
        if self._cancelling or self._ending:
            terminate(self._process)
        out, err = await self._process.communicate()
        status = self._process.returncode
        assert status is not None, "it has ended"
        return status, out.decode(errors="replace"), err.decode(errors="replace")

    def queued(self, after: int) -> list[LessonState]:
        """The lessons of requests that are not on file yet; after: how many are."""
        states: list[LessonState] = []
        for post in self._posts:
            if post.facts is not None and post.on_file in (None, after):
                states += [
                    LessonState(number, task.name, "waiting", len(questions_of(task)))
                    for number, task in enumerate(post.facts.tasks, start=after + len(states) + 1)
                ]
        return states

    async def cancel(self, numbers: Collection[int]) -> None:
        count = self._count()
        begin, running = count + 1, False
        wanted = {number for number in numbers if number <= count}
        for post, task in list(self._posts.items()):
            if task.done():
                continue
            running = running or post.on_file is not None
            if post.on_file not in (None, count):
                continue  # its lessons are on file
            own = range(begin, begin + len(post.facts.tasks if post.facts else ()))
            begin = own.stop
            hit = own and any(number in own for number in numbers)
            if hit and post.on_file is None:
                post.cancelled = True
                task.cancel()
            elif hit:
                wanted.update(own)
        if not wanted:
            return
        if not running:
            await asyncio.to_thread(cancel_lessons, self._directory, wanted)
            return
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._cancelling.append((wanted, told))
        await stop(self._process)
        await told

    def _cancel_on_file(self) -> list[LessonState]:
        """Do what the process was stopped for; the lessons that wait on file then."""
        wanted, self._cancelling = self._cancelling, []
        for numbers, told in wanted:
            on_file = {state.number for state in waiting_lessons(self._directory)}
            try:
                cancel_lessons(self._directory, on_file.intersection(numbers))
            except HoldfastError as error:
                told.get_loop().call_soon_threadsafe(told.set_exception, error)
            else:
                told.get_loop().call_soon_threadsafe(told.set_result, None)
        return waiting_lessons(self._directory)

    def ending(self) -> None:
        self._ending = True
        for _, told in self._cancelling:
            told.set_exception(RefusalError(503, "the server ends; cancel it again", "ending"))
        for post, task in self._posts.items():
            if post.on_file is None:
                task.cancel()
        terminate(self._process)

    async def end(self) -> None:
        await stop(self._process, _PATIENCE)
        if self._finishing is not None:
            await self._finishing


def _cancelled() -> RefusalError:
    return RefusalError(409, "the lesson was cancelled", "cancelled")


def killed_by(status: int) -> str:
    """What is said of a process that a signal has killed. status: its exit status, negative."""
    with contextlib.suppress(ValueError):
        name = signal.Signals(-status).name
        return f"was killed by {name}; is there too little memory?"
    return f"was killed by signal {-status}"


def terminate(process: asyncio.subprocess.Process | None) -> None:
    """Ask a process to end, if it runs."""
    if process is not None and process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()


async def stop(process: asyncio.subprocess.Process | None, seconds: float | None = None) -> None:
    """Stop a lesson that is in progress; the next one, or `holdfast learn`, finishes it.

    seconds: after which it is killed, which loses no more; None to wait for it.
    """
    terminate(process)
    if process is not None and process.returncode is None:
        try:
            await asyncio.wait_for(process.wait(), seconds)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def _file_of(facts: Stream | None) -> IO[bytes]:
    """A file of facts, to be read. Raises RefusalError where there is no room for it."""
    given = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    try:
        given.write(_lines(facts).encode() if facts else b"")
        given.seek(0)
    except OSError as error:
        with contextlib.suppress(OSError):  # what could not be written is tried once more
            given.close()
        told = f"the temporary folder: cannot be written ({error.strerror}); make room"
        raise refusal_of(NoSpaceError(told), kept=False) from error
    return given


def _lines(facts: Stream) -> str:
    rows = (values_of(task, item) for task in facts.tasks for item in task.items)
    return "".join(f"{json.dumps(row)}\n" for row in rows)
