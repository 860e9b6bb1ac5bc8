"""Questions that arrive one by one, answered side by side on one thread, which owns the memory."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from holdfast.core.errors import HoldfastError
from holdfast.memory.answering import Reply
from holdfast.memory.memory import Memory
from holdfast.memory.telling import reply_values
from holdfast.serving.refusal import RefusalError

logger = logging.getLogger(__name__)
Value = TypeVar("Value")

WAITING = 256  # questions; one more is refused
BATCH = 64  # questions decoded side by side
NOT_TAUGHT = "I was not taught that."
HALF_FORGOTTEN = "I was taught that, but have half forgotten it."


@dataclass(frozen=True)
class Answered:
    """What a memory answers.

    content: the text for a reader; values: see
    :func:`holdfast.memory.telling.reply_values`; question_tokens, answer_tokens: their lengths.
    """

    content: str
    values: dict[str, Any]
    question_tokens: int
    answer_tokens: int


class Batcher:
    """Answers questions with a memory that only its own thread uses.

    What another process has taught is taken up before the next batch. To be used from one event
    loop.
    """

    def __init__(self, memory: Memory, waiting: int = WAITING, batch: int = BATCH) -> None:
        """waiting: the most questions that wait; batch: the most that are decoded side by side."""
        self._memory = memory
        self._most, self._batch = waiting, batch
        self._waiting: list[tuple[str, asyncio.Future[Answered]]] = []
        self._draining: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="memory")
        self._told = ""

    async def ask(self, questions: Sequence[str]) -> list[Answered]:
        """The answers, in order.

        Raises RefusalError when too many questions wait, HoldfastError for a question that is
        empty or too long and for a memory that has learned nothing.
        """
        if len(self._waiting) + len(questions) > self._most:
            raise RefusalError(503, f"{len(self._waiting)} questions wait; ask again later", "busy")
        loop = asyncio.get_running_loop()
        added = [(question, loop.create_future()) for question in questions]
        self._waiting += added
        if self._draining is None or self._draining.done():
            self._draining = loop.create_task(self._drain())
        answers = await asyncio.gather(*(future for _, future in added), return_exceptions=True)
        found = []
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
            found.append(answer)
        return found

    async def call(self, function: Callable[[Memory], Value]) -> Value:
        """The value of ``function(memory)``, called on the memory's thread, brought up to date."""

        def work() -> Value:
            self._refresh()
            return function(self._memory)

        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def close(self) -> None:
        """End the thread once its work is done; what waits is not answered."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    async def _drain(self) -> None:
        while self._waiting:
            batch = self._waiting[: self._batch]
            del self._waiting[: self._batch]
            asked = [question for question, future in batch if not future.done()]
            done = asyncio.ensure_future(self.call(partial(_answers, questions=asked)))
            await asyncio.wait({done})
            failure = done.exception()
            answers = dict(zip(asked, done.result() if failure is None else (), strict=False))
            for question, future in batch:
                if future.done():  # whoever asked has left
                    continue
                answer = failure or answers[question]
                if isinstance(answer, BaseException):
                    future.set_exception(answer)
                else:
                    future.set_result(answer)

    def _refresh(self) -> None:
        """Take up what was taught; a failure is logged once and the memory answers as before."""
        try:
            self._memory.refresh()
            self._told = ""
        except HoldfastError as error:
            if self._told != str(error):
                self._told = str(error)
                logger.warning("what was taught since could not be loaded: %s", error)


def _answers(memory: Memory, questions: Sequence[str]) -> list[Answered | HoldfastError]:
    """For each question its answer, or what is wrong with it."""
    different = list(dict.fromkeys(questions))
    try:
        found = dict(zip(different, memory.replies(different), strict=True))
    except HoldfastError:
        return [_answer_alone(memory, question) for question in questions]
    return [_answered(memory, question, found[question]) for question in questions]


def _answer_alone(memory: Memory, question: str) -> Answered | HoldfastError:
    try:
        return _answered(memory, question, memory.reply(question))
    except HoldfastError as error:
        return error


def _answered(memory: Memory, question: str, reply: Reply) -> Answered:
    values = reply_values(memory, question, reply)
    if reply.taught is False:
        content = HALF_FORGOTTEN if values["on_file"] else NOT_TAUGHT
    else:
        content = reply.answer or reply.text
    encode = memory.load().backbone.tokenizer.encode
    return Answered(content, values, len(encode(reply.question)), len(encode(content)))
