"""The queue of questions, and the guard before it, without a socket."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.core.errors import HoldfastError
from holdfast.serving.batcher import Batcher
from holdfast.serving.batcher import NOT_TAUGHT, Answered, AskedQuestion, Piece, Steps
from holdfast.serving.guard import Guard
from holdfast.serving.refusal import RefusalError


@dataclass
class Answering:
    """A service that answers in capitals what begins with ``w``; asked: its batches."""

    asked: list[list[str]] = field(default_factory=list)
    refreshed: int = 0
    broken: Exception | None = None
    batch: int = 64
    memory: Any = None

    def refresh(self) -> bool:
        self.refreshed += 1
        if self.broken is not None:
            raise self.broken
        return False

    def answering(self, questions: Sequence[AskedQuestion]) -> Steps:
        self.asked.append([one.text for one in questions])
        if "fault" in self.asked[-1]:
            raise ZeroDivisionError("our own")
        yield [(number, self._event(one.text)) for number, one in enumerate(questions)]

    def _event(self, text: str) -> Answered | HoldfastError:
        if text == "bad":
            return HoldfastError("a bad question")
        content = text.upper() if text.startswith("w") else NOT_TAUGHT
        return Answered(content, {}, 1, 1)


def batcher(service: Answering, **bounds: int) -> Batcher:
    return Batcher(service, **bounds)  # type: ignore[arg-type]


def test_questions_that_wait_are_answered_side_by_side() -> None:
    memory = Answering()

    async def ask() -> list[Any]:
        queue = batcher(memory, batch=3)
        asked = [queue.ask([f"w{i % 5}"]) for i in range(7)]
        return [answer.content for [answer] in await asyncio.gather(*asked)]

    assert asyncio.run(ask()) == [f"W{i % 5}" for i in range(7)]
    assert max(map(len, memory.asked)) == 3 and len(memory.asked) <= 4
    assert memory.refreshed == len(memory.asked)


def test_a_full_queue_refuses_and_recovers() -> None:
    async def ask() -> None:
        queue = batcher(Answering(), waiting=2)
        first = asyncio.ensure_future(queue.ask(["w1", "w2"]))
        await asyncio.sleep(0)
        with pytest.raises(RefusalError) as refused:
            await queue.ask(["w3"])
        assert refused.value.status == 503 and refused.value.headers() == {"Retry-After": "1"}
        assert [answer.content for answer in await first] == ["W1", "W2"]
        assert (await queue.ask(["w3"]))[0].content == "W3"

    asyncio.run(ask())


def test_a_wrong_question_harms_no_other() -> None:
    async def ask() -> None:
        queue = batcher(Answering())
        found = await asyncio.gather(
            *(queue.ask([one]) for one in ("w1", "bad", "other")), return_exceptions=True
        )
        assert isinstance(found[1], HoldfastError)
        assert [answer[0].content for answer in (found[0], found[2])] == ["W1", NOT_TAUGHT]
        assert found[0][0].question_tokens == 1
        with pytest.raises(ZeroDivisionError):
            await queue.ask(["fault"])
        left = asyncio.ensure_future(queue.ask(["w4"]))
        await asyncio.sleep(0)
        left.cancel()
        assert (await queue.ask(["w5"]))[0].content == "W5"

    asyncio.run(ask())


LONG = "x" * 400  # costs nearly a step


def test_a_step_reads_a_bounded_number_of_tokens() -> None:
    memory = Answering()
    asyncio.run(batcher(memory).ask([LONG + str(number) for number in range(3)]))
    assert [len(batch) for batch in memory.asked] == [1, 1, 1]


def test_the_queue_is_bounded_by_what_its_questions_cost() -> None:
    async def ask() -> None:
        queue = batcher(Answering())
        with pytest.raises(HoldfastError, match="has 4001 characters, and at most 4000 are read"):
            queue.put([AskedQuestion("x" * 4001)])
        first = queue.put([AskedQuestion("y" * 4000)] * 128)
        with pytest.raises(RefusalError) as refused:
            queue.put([AskedQuestion("w")])
        assert refused.value.status == 503
        for one in first:
            one.left = True  # what nobody waits for makes room
        assert (await queue.ask(["w"]))[0].content == "W"

    asyncio.run(ask())


def test_a_short_question_overtakes_long_ones() -> None:
    memory = Answering()

    async def ask() -> None:
        queue = batcher(memory)
        asked = [queue.ask([text]) for text in (LONG + "1", LONG + "2", LONG + "3", "w")]
        await asyncio.gather(*asked)

    asyncio.run(ask())
    assert [batch[0][-1] for batch in memory.asked] == ["w", "2", "3"]


def test_what_nobody_waits_for_is_not_answered() -> None:
    """Through the guard, which cancels the request of a client that has left."""
    memory = Answering()

    async def ask() -> None:
        queue = batcher(memory)
        gone = asyncio.Event()

        async def application(scope: Any, receive: Any, send: Any) -> None:
            await receive()
            await queue.ask([LONG + "1", LONG + "2"])

        messages = [{"type": "http.request", "body": b"", "more_body": False}]

        async def receive() -> dict[str, Any]:
            if not messages:
                await gone.wait()
                return {"type": "http.disconnect"}
            return messages.pop()

        async def send(message: Any) -> None:
            raise AssertionError("nobody is there")

        guard = Guard(application, key=None, hosts=None, open_paths=())
        scope = {"type": "http", "path": "/v1/completions", "headers": []}
        request = asyncio.ensure_future(guard(scope, receive, send))
        await asyncio.sleep(0)
        gone.set()
        await request
        assert (await queue.ask(["w"]))[0].content == "W"

    asyncio.run(ask())
    assert not any(LONG + "2" in batch for batch in memory.asked)


def test_the_end_tells_whoever_waits_and_waits_for_no_long_step() -> None:
    memory, running = Answering(), threading.Event()
    release = threading.Event()

    async def ask() -> None:
        queue = batcher(memory)

        def step(_: Any) -> None:
            running.set()
            release.wait()

        stuck = asyncio.ensure_future(queue.call(step))
        await asyncio.to_thread(running.wait)
        waiting = asyncio.ensure_future(queue.ask(["w"]))
        behind = asyncio.ensure_future(queue.call(lambda _: None))  # the step after it
        await asyncio.sleep(0.05)
        queue.end()
        for refused in (waiting, behind, asyncio.ensure_future(queue.ask(["w"]))):
            with pytest.raises(RefusalError, match="the server ends") as told:
                await refused
            assert told.value.status == 503
        begin = time.monotonic()
        assert not await queue.close()
        assert time.monotonic() - begin < 1.5
        release.set()
        await stuck

    asyncio.run(ask())


@dataclass
class Writing:
    """A service that writes ``letters`` letters for every question; log: what it did, in order."""

    letters: int = 4
    batch: int = 2
    log: list[str] = field(default_factory=list)
    memory: Any = field(default_factory=lambda: SimpleNamespace(directory=Path("nowhere")))

    def refresh(self) -> bool:
        return False

    def answering(self, questions: Sequence[AskedQuestion]) -> Steps:
        texts = [question.text for question in questions]
        self.log += [f"begin {text}" for text in texts]
        whole = {"quick": Answered("quick", {}, 1, 1)}
        try:
            yield [(n, whole.get(text, Piece("", {}))) for n, text in enumerate(texts)]
            for _ in range(self.letters):
                self.log += ["step"]
                yield [(n, Piece("x", {})) for n, text in enumerate(texts) if text not in whole]
            yield [
                (n, Answered("x" * self.letters, {}, 1, self.letters))
                for n, text in enumerate(texts)
                if text not in whole
            ]
        finally:
            self.log += [f"end {text}" for text in texts]


def test_what_is_quick_is_answered_between_two_tokens_of_what_is_long() -> None:
    service = Writing(letters=1000)

    async def ask() -> None:
        queue = Batcher(service)  # type: ignore[arg-type]
        [long] = queue.put([AskedQuestion("long")])
        assert await long.next() == Piece("", {})
        assert (await queue.ask(["quick"]))[0].content == "quick"
        assert not long.done and "end long" not in service.log
        assert (await long.answer()).content == "x" * 1000

    asyncio.run(ask())


def test_no_more_is_written_side_by_side_than_a_batch() -> None:
    service = Writing()

    async def ask() -> None:
        queue = Batcher(service)  # type: ignore[arg-type]
        found = await queue.ask(["a", "b", "c", "quick", "d"])
        assert [one.content for one in found] == ["xxxx", "xxxx", "xxxx", "quick", "xxxx"]

    asyncio.run(ask())
    open_now = most = 0
    for line in service.log:
        if line.endswith("quick"):
            continue
        open_now += line.startswith("begin") - line.startswith("end")
        most = max(most, open_now)
    assert most == 2


def test_what_nobody_reads_is_not_written_to_its_end() -> None:
    service = Writing(letters=10**6)

    async def ask() -> None:
        queue = Batcher(service)  # type: ignore[arg-type]
        asked = queue.put([AskedQuestion("left"), AskedQuestion("left too")])
        for one in asked:
            await one.next()
            one.left = True
        assert (await queue.ask(["quick"]))[0].content == "quick"

    asyncio.run(ask())
    assert len(service.log) < 10**5


def test_a_commit_that_cannot_be_loaded_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    memory = Answering(broken=HoldfastError("damaged"))

    async def ask() -> None:
        queue = batcher(memory)
        for _ in range(3):
            assert (await queue.ask(["w"]))[0].content == "W"

    asyncio.run(ask())
    assert [record.message for record in caplog.records] == [
        "what was taught since could not be loaded: damaged"
    ]


def test_a_body_that_does_not_arrive() -> None:
    sent: list[dict[str, Any]] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError("the request was not whole")

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(0.05)
        return {"type": "http.request", "body": b"x", "more_body": True}

    async def send(message: Any) -> None:
        sent.append(message)

    guard = Guard(application, key=None, hosts=None, open_paths=(), seconds=0.2)
    scope = {"type": "http", "path": "/facts", "headers": []}
    asyncio.run(guard(scope, receive, send))
    assert sent[0]["status"] == 408


MISTAKES = [
    (("nothing",), "no such memory"),
    (("nothing", "--teach", "--host", "no.such.host.invalid"), "cannot be listened on"),
    (("{file}",), "{file}"),
    (("{other}",), "{other}"),
]


@pytest.mark.parametrize(("arguments", "told"), MISTAKES)
def test_mistakes_of_the_command_line(
    holdfast: Any, tmp_path: Path, arguments: tuple[str, ...], told: str
) -> None:
    file, other = tmp_path / "file", tmp_path / "other"
    file.write_text("text")
    other.mkdir()
    (other / "notes.txt").write_text("text")
    names = {"file": file, "other": other}
    first, *rest = (one.format(**names) for one in arguments)
    found = holdfast("serve", tmp_path / first, *rest, "--port", "0")
    assert (found.status, found.out) == (2, "")
    assert found.err.startswith("holdfast: ") and told.format(**names) in found.err
    assert found.err.count("\n") == 1
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize("key", ["  ", "käse"])
def test_a_key_that_is_none(
    holdfast: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv("HOLDFAST_API_KEY", key)
    found = holdfast("serve", tmp_path / "m", "--teach", "--port", "0")
    assert found.status == 2 and "HOLDFAST_API_KEY: holds no key" in found.err


def test_without_the_extra(holdfast: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    found = holdfast("serve", tmp_path / "m")
    assert found.status == 2 and 'pip install "holdfast[serve]"' in found.err
