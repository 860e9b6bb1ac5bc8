"""The queue of questions, without a socket and without a model."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.core.errors import HoldfastError
from holdfast.serving import batcher as module
from holdfast.serving.answers import NOT_TAUGHT, Answered, AskedQuestion, Piece, Steps
from holdfast.serving.batcher import Batcher, whole
from holdfast.serving.refusal import RefusalError

LONG = "x" * 400  # costs nearly a step


@dataclass
class Answering:
    """A service that answers at once, in capitals what begins with ``w``; asked: its batches."""

    asked: list[list[str]] = field(default_factory=list)
    refreshed: int = 0
    broken: Exception | None = None
    max_answers: int = 64

    @property
    def memory(self) -> Any:
        return self

    def refresh(self) -> bool:
        self.refreshed += 1
        if self.broken is not None:
            raise self.broken
        return False

    def answering(self, questions: Sequence[AskedQuestion]) -> Steps:
        self.asked.append([question.text for question in questions])
        if "fault" in self.asked[-1]:
            raise ZeroDivisionError("our own")
        yield [(number, self._event(question.text)) for number, question in enumerate(questions)]

    def _event(self, text: str) -> Answered | HoldfastError:
        if text == "bad":
            return HoldfastError("a bad question")
        return Answered(text.upper() if text.startswith("w") else NOT_TAUGHT, {}, 1, 1)


@dataclass
class Writing:
    """A service that writes ``letters`` letters for every question; log: what it did, in order."""

    letters: int = 4
    max_answers: int = 2
    log: list[str] = field(default_factory=list)
    memory: Any = field(
        default_factory=lambda: SimpleNamespace(directory=Path("nowhere"), refresh=bool)
    )

    def answering(self, questions: Sequence[AskedQuestion]) -> Steps:
        texts = [question.text for question in questions]
        quick = {"quick": Answered("quick", {}, 1, 1)}
        slow = [number for number, text in enumerate(texts) if text not in quick]
        self.log += [f"begin {text}" for text in texts]
        try:
            yield [(n, quick.get(text, Piece("", {}))) for n, text in enumerate(texts)]
            for _ in range(self.letters):
                self.log += ["step"]
                yield [(n, Piece("x", {})) for n in slow]
            yield [(n, self._whole(questions[n])) for n in slow]
        finally:
            self.log += [f"end {text}" for text in texts]

    def _whole(self, question: AskedQuestion) -> Answered:
        finish = "length" if question.most == self.letters else "stop"
        return Answered("x" * self.letters, {"taught": False}, 1, self.letters, finish)


async def ask(queue: Batcher, *questions: str) -> list[Answered]:
    return await whole(queue.put([AskedQuestion(question) for question in questions]))


def story(service: Any, steps: Any) -> Any:
    """What the coroutine ``steps(queue)`` gives, of a queue before a service."""

    async def run() -> Any:
        return await steps(Batcher(service))

    return asyncio.run(run())


def test_questions_that_wait_are_answered_side_by_side() -> None:
    memory = Answering(max_answers=3)

    async def steps(queue: Batcher) -> list[str]:
        asked = [ask(queue, f"w{i % 5}") for i in range(7)]
        return [answer.content for [answer] in await asyncio.gather(*asked)]

    assert story(memory, steps) == [f"W{i % 5}" for i in range(7)]
    assert max(map(len, memory.asked)) == 3 and len(memory.asked) <= 4
    assert memory.refreshed == len(memory.asked)


def test_the_queue_is_bounded_and_recovers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAITING", 128)

    async def steps(queue: Batcher) -> None:
        with pytest.raises(HoldfastError, match="has 4001 characters, and at most 4000 are read"):
            queue.put([AskedQuestion("x" * 4001)])
        for full in ([AskedQuestion("w1")] * 128, [AskedQuestion("y" * 4000)] * 128):  # many, long
            first = queue.put(full)
            with pytest.raises(RefusalError) as refused:
                queue.put([AskedQuestion("w")])
            assert refused.value.status == 503 and refused.value.headers() == {"Retry-After": "1"}
            for pending in first:
                pending.left = True  # what nobody waits for makes room
            assert (await ask(queue, "w3"))[0].content == "W3"

    story(Answering(), steps)


def test_a_wrong_question_harms_no_other() -> None:
    async def steps(queue: Batcher) -> None:
        asked = [ask(queue, text) for text in ("w1", "bad", "other")]
        results: list[Any] = await asyncio.gather(*asked, return_exceptions=True)
        assert isinstance(results[1], HoldfastError)
        assert [answer[0].content for answer in (results[0], results[2])] == ["W1", NOT_TAUGHT]
        with pytest.raises(ZeroDivisionError):
            await ask(queue, "fault")
        request = asyncio.ensure_future(ask(queue, "w4"))
        await asyncio.sleep(0)
        request.cancel()
        assert (await ask(queue, "w5"))[0].content == "W5"

    story(Answering(), steps)


def test_a_step_is_bounded_and_a_short_question_overtakes_long_ones() -> None:
    memory = Answering()

    async def steps(queue: Batcher) -> None:
        await asyncio.gather(*(ask(queue, text) for text in (LONG + "1", LONG + "2", "w")))

    story(memory, steps)
    assert [[text[-1] for text in batch] for batch in memory.asked] == [["w", "1"], ["2"]]

    async def left(queue: Batcher) -> None:
        first, *others = queue.put([AskedQuestion(f"{LONG}{n}") for n in range(2)])
        others += queue.put([AskedQuestion("w")])
        first.left = True  # costs nothing
        await whole(others)

    memory.asked.clear()
    story(memory, left)
    assert [[text[-1] for text in batch] for batch in memory.asked] == [["w", "1"]]


def test_the_end_tells_whoever_waits_and_waits_for_no_long_step() -> None:
    running, release = threading.Event(), threading.Event()

    def step(_: Any) -> None:
        running.set()
        release.wait()

    async def steps(queue: Batcher) -> None:
        stuck = asyncio.ensure_future(queue.call(step))
        await asyncio.to_thread(running.wait)
        waiting = asyncio.ensure_future(ask(queue, "w"))
        behind = asyncio.ensure_future(queue.call(lambda _: None))  # the step after it
        await asyncio.sleep(0.05)
        queue.end()
        refused: list[Coroutine[Any, Any, Any] | asyncio.Future[Any]]
        refused = [stuck, waiting, behind, ask(queue, "w")]
        for request in refused:
            with pytest.raises(RefusalError, match="the server ends") as error:
                await request
            assert error.value.status == 503
        begin = time.monotonic()
        assert not await queue.close()
        assert time.monotonic() - begin < 1.5
        release.set()

    story(Answering(), steps)


def test_what_is_quick_is_answered_between_two_tokens_of_what_is_long() -> None:
    service = Writing(letters=1000)

    async def steps(queue: Batcher) -> None:
        [long] = queue.put([AskedQuestion("long")])
        assert await long.next() == Piece("", {})
        assert (await ask(queue, "quick"))[0].content == "quick"
        assert not long.done and "end long" not in service.log
        assert (await long.answer()).content == "x" * 1000

    story(service, steps)


def test_no_more_is_written_side_by_side_than_a_batch() -> None:
    service = Writing()
    answers = story(service, lambda queue: ask(queue, "a", "b", "c", "quick", "d"))
    assert [answer.content for answer in answers] == ["xxxx", "xxxx", "xxxx", "quick", "xxxx"]
    open_now = most = 0
    for line in service.log:
        if not line.endswith("quick"):
            open_now += line.startswith("begin") - line.startswith("end")
            most = max(most, open_now)
    assert most == 2


def test_what_nobody_reads_is_not_written_to_its_end_and_others_are() -> None:
    async def steps(queue: Batcher, other: str) -> str:
        left, stays = queue.put([AskedQuestion("left"), AskedQuestion(other)])
        await left.next()
        left.left = True
        answer = await asyncio.wait_for(stays.answer(), 20)
        while queue.busy:
            await asyncio.sleep(0.01)
        return answer.content

    service = Writing(letters=10**5)
    assert story(service, lambda queue: steps(queue, "quick")) == "quick"
    assert len(service.log) < 10**4
    assert story(Writing(), lambda queue: steps(queue, "stays")) == "xxxx"


def test_a_commit_that_cannot_be_loaded_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """And again after one that could."""
    memory, broken = Answering(), HoldfastError("damaged")

    async def steps(queue: Batcher) -> None:
        for memory.broken in (broken, broken, None, broken):
            assert (await ask(queue, "w"))[0].content == "W"

    story(memory, steps)
    message = "what was taught since could not be loaded: damaged"
    assert [record.message for record in caplog.records] == [message] * 2
