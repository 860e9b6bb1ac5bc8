"""A served memory is consolidated when nobody asks: when that begins, ends, and is left alone."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.memory.detached import consolidating_command
from holdfast.memory.memory import Memory
from holdfast.memory.record import LearnedLesson, Record, read_record, write_record
from holdfast.memory.states import LessonProgress
from holdfast.serving import idle
from holdfast.serving.idle import IdleConsolidation
from holdfast.streams import Item, Stream, Task, write_jsonl
from tests.memory.memories import Holdfast
from tests.serving.chat_memories import FACTS, LATER, learned
from tests.serving.served import serving

ENDS = """
import json, pathlib, sys
file = pathlib.Path(sys.argv[1], "memory.json")
values = json.loads(file.read_text())
part = file.with_suffix(".part")
part.write_text(json.dumps({**values, "consolidated": len(values["lessons"])}))
part.replace(file)
"""
RUNS = "import time; time.sleep(60)"
FAILS = "import sys; sys.exit(2)"


def put_on_file(place: Path, count: int, learned: int) -> None:
    """Facts of ``count`` lessons, of which ``learned`` have an adapter of their own."""
    tasks = tuple(Task(str(n), (Item(f"Who is {n}?", "Una"),)) for n in range(1, count + 1))
    place.mkdir(exist_ok=True)
    write_jsonl(Stream(tasks, "m", repeats=True), place / "facts.jsonl")
    done = tuple(
        LearnedLesson(task.name, task.fingerprint, task.name, ()) for task in tasks[:learned]
    )
    write_record(place, Record("m", "f", 0, done))


class Watched:
    """Lines that are said, and how often the process was started."""

    def __init__(self, place: Path, patch: pytest.MonkeyPatch) -> None:
        self.said: list[str] = []
        self.starts = 0
        self.script = ENDS
        patch.setattr(idle, "_EVERY", 0.02)
        patch.setattr(idle, "consolidating_command", self._command)
        self.one = IdleConsolidation(place, 0.2, self.said.append)
        self.busy = False

    def _command(self, place: Path) -> list[str]:
        self.starts += 1
        return [sys.executable, "-c", self.script, str(place)]

    async def until(self, fits: Callable[[], bool], seconds: float = 20) -> float:
        begin = time.monotonic()
        while not fits():
            assert time.monotonic() < begin + seconds, self.said
            await asyncio.sleep(0.01)
        return time.monotonic() - begin

    def run(self, steps: Callable[[], Coroutine[None, None, None]]) -> None:
        async def whole() -> None:
            self.one.begin(lambda: self.busy)
            try:
                await steps()
            finally:
                await self.one.end()

        asyncio.run(whole())


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "m"


@pytest.fixture
def watched(place: Path, monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(place, monkeypatch)


def test_it_begins_once_nobody_asks_and_not_again(watched: Watched, place: Path) -> None:
    put_on_file(place, 2, 2)

    async def steps() -> None:
        for _ in range(10):  # asked again and again
            watched.one.asked()
            await asyncio.sleep(0.05)
        watched.busy = True  # an answer is being written
        await asyncio.sleep(0.4)
        assert watched.starts == 0
        watched.busy = False
        await watched.until(lambda: len(watched.said) == 2)
        await asyncio.sleep(0.6)
        # The lessons kept their adapters, and nothing is new.
        assert watched.starts == 1 and "2 lessons are answered from 2 adapters" in watched.said[1]
        record = read_record(place)
        put_on_file(place, 3, 3)
        new = read_record(place).lessons
        write_record(place, replace(record, lessons=new))
        await watched.until(lambda: watched.starts == 2 and len(watched.said) == 4)
        await asyncio.sleep(0.4)
        assert watched.starts == 2

    watched.run(steps)


@pytest.mark.parametrize("why", ["a question", "a lesson", "the server ends"])
def test_it_is_stopped_at_once_and_goes_on(watched: Watched, place: Path, why: str) -> None:
    put_on_file(place, 2, 2)
    watched.script = RUNS

    async def steps() -> None:
        await watched.until(lambda: watched.starts == 1)
        await asyncio.sleep(0.2)
        assert len(watched.said) == 1
        if why == "the server ends":
            return
        if why == "a question":
            watched.one.asked()
        else:
            put_on_file(place, 3, 2)
        assert await watched.until(lambda: len(watched.said) == 2) < 2
        assert "was stopped by a request" in watched.said[1]
        if why == "a lesson":
            await asyncio.sleep(0.6)
            assert watched.starts == 1  # the lesson comes first
            put_on_file(place, 3, 3)
        await watched.until(lambda: watched.starts == 2)

    begin = time.monotonic()
    watched.run(steps)
    assert time.monotonic() - begin < 20


def test_what_failed_or_is_not_needed_is_left_alone(watched: Watched, place: Path) -> None:
    watched.script = FAILS

    async def steps() -> None:
        await asyncio.sleep(0.5)  # there is no memory yet
        put_on_file(place, 1, 1)  # a lesson alone is one adapter already
        await asyncio.sleep(0.5)
        assert watched.starts == 0
        put_on_file(place, 2, 2)
        await watched.until(lambda: len(watched.said) == 2)
        assert "lessons.log says why" in watched.said[1]
        await asyncio.sleep(0.6)
        assert watched.starts == 1
        put_on_file(place, 3, 3)
        await watched.until(lambda: watched.starts == 2)
        await watched.until(lambda: len(watched.said) == 4)
        (place / "memory.json").write_text("{")  # damaged
        await asyncio.sleep(0.5)
        assert watched.starts == 2

    watched.run(steps)


def test_a_lesson_that_failed_is_not_waited_for(watched: Watched, place: Path) -> None:
    put_on_file(place, 3, 2)
    failed = LessonProgress(place)
    failed.begin(3)
    failed.failed("too long")

    async def steps() -> None:
        await watched.until(lambda: watched.starts == 1)

    watched.run(steps)


def test_it_ends_with_a_server_that_is_killed(directory: Path, holdfast: Holdfast) -> None:
    Memory(directory).learn(LATER)
    before = learned(directory)
    server = subprocess.Popen([sys.executable, "-c", ""])
    server.wait()
    assert consolidating_command(directory)[-2:] == ["--server", str(os.getpid())]
    outcome = holdfast("consolidate", directory, "--server", server.pid)
    assert outcome.status == 130 and "the same command continues" in outcome.err
    assert learned(directory) == before


def test_a_served_memory_is_consolidated_between_questions(directory: Path) -> None:
    Memory(directory).learn(LATER)
    options = ("--teach", "--consolidate-after", "0.02")
    with serving(directory, *options, lesson="tests.serving.quick_steps") as server:
        end = time.monotonic() + 240
        while "2 lessons are answered from" not in server.complaints():
            assert time.monotonic() < end, (directory / "lessons.log").read_text()
            time.sleep(0.05)
        assert read_record(directory).consolidated == 2
        for question, answer in [*FACTS, *LATER]:
            assert server.ask(question)["text"] == answer
        assert not server.lessons.alive()
