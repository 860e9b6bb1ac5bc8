"""The teacher of a server without one: facts that are not put on file, and the end."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.errors import HoldfastError, InUseError
from holdfast.core.files import lock_directory
from holdfast.memory.states import LessonState, lesson_states
from holdfast.serving.batcher import Batcher
from holdfast.serving.refusal import RefusalError, refusal_of
from holdfast.serving.teacher import Teacher
from tests.serving.chat_memories import FACTS
from tests.serving.test_batcher import Answering
from tests.serving.test_idle import put_on_file


def test_facts_that_are_not_put_on_file(tmp_path: Path) -> None:
    """Another process holds the list; or they wait for the model's thread when the server ends."""
    running, release = threading.Event(), threading.Event()

    async def busy(_: Any) -> Any:
        raise InUseError("m: another process is writing here")

    def step(_: Any) -> None:
        running.set()
        release.wait()

    async def at_the_end() -> None:
        queue = Batcher(Answering())  # type: ignore[arg-type]
        teacher = Teacher(tmp_path, queue.call)
        stuck = asyncio.create_task(queue.call(step))
        await asyncio.to_thread(running.wait)
        request = asyncio.create_task(teacher.teach([FACTS[0]], 0, wait=False))
        await asyncio.sleep(0.3)
        queue.end()
        teacher.ending()
        try:
            await asyncio.wait_for(request, 5)
        finally:
            release.set()
            with suppress(RefusalError):
                await stuck

    for story in (Teacher(tmp_path, busy).teach([FACTS[0]], 0, wait=False), at_the_end()):
        with pytest.raises(RefusalError) as error:
            asyncio.run(story)
        assert error.value.status == 503 and error.value.kept is False
        assert error.value.headers()["Retry-After"]


def test_a_place_that_cannot_be_written_is_no_mistake_of_the_client(tmp_path: Path) -> None:
    (tmp_path / "m").write_text("no directory")
    with pytest.raises(HoldfastError) as error, lock_directory(tmp_path / "m"):
        pass
    refusal = refusal_of(error.value, kept=False)
    assert (refusal.status, refusal.code, refusal.kept) == (500, "unwritable", False)


def test_facts_that_are_being_put_on_file_at_the_end(tmp_path: Path) -> None:
    running, release = threading.Event(), threading.Event()

    class Slow(Answering):
        @property
        def tasks(self) -> Any:
            running.set()
            release.wait()

    async def story() -> None:
        queue = Batcher(Slow())  # type: ignore[arg-type]
        teaching = Teacher(tmp_path, queue.call).teach([FACTS[0]], 0, wait=False)
        request = asyncio.create_task(teaching)
        await asyncio.to_thread(running.wait)
        queue.end()
        try:
            await asyncio.wait_for(request, 5)
        finally:
            release.set()

    with pytest.raises(RefusalError, match="they may not be kept") as error:
        asyncio.run(story())
    assert error.value.status == 503 and error.value.kept is None


def test_who_waits_reads_the_lessons_only_where_something_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []

    def states(directory: Path) -> list[LessonState]:
        read.append(len(read))
        return lesson_states(directory)

    async def story() -> None:
        teacher: Any = Teacher(tmp_path, lambda _: None)
        teacher._learning = asyncio.create_task(asyncio.sleep(60))
        waiting = asyncio.create_task(teacher._learned(["2"]))
        await asyncio.sleep(0.5)
        assert len(read) == 1
        put_on_file(tmp_path, 2, 2)
        assert await asyncio.wait_for(waiting, 20) == []

    monkeypatch.setattr("holdfast.serving.teacher.lesson_states", states)
    monkeypatch.setattr("holdfast.serving.teacher._EVERY", 0.02)
    put_on_file(tmp_path, 2, 1)
    asyncio.run(story())


def test_the_end_does_not_wait_for_a_lesson_that_goes_on(tmp_path: Path) -> None:
    async def story() -> float:
        teacher: Any = Teacher(tmp_path, lambda _: None)
        begin = "trap '' TERM; echo; exec sleep 30"
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec("sh", "-c", begin, stdout=pipe)
        assert process.stdout is not None and await process.stdout.readline()
        teacher._process = process
        before = time.monotonic()
        await teacher.end()
        assert process.returncode == -9
        return time.monotonic() - before

    assert asyncio.run(story()) < 0.9
