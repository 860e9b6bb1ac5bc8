"""Questions that arrive one by one, answered side by side on one thread, which owns the memory.

A step of the work is a call on that thread. So while one answer is written token by token, other
questions are read and answered between two of its tokens. A step reads so many tokens at most, and
short questions overtake long ones that came a little before, so nobody waits long for another's.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from bisect import insort
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.core.errors import HoldfastError
from holdfast.serving.events import (
    LONGEST,
    Answered,
    AskedQuestion,
    Event,
    Piece,
    Steps,
)
from holdfast.serving.refusal import RefusalError

if TYPE_CHECKING:
    from holdfast.serving.served_memory import ServedMemory  # which loads torch


logger = logging.getLogger(__name__)
Value = TypeVar("Value")

WAITING = 256  # questions; one more is refused
# Costs, in tokens: of the questions that wait, some minutes of work; and of a step, a second.
_WAITING_COST = 1 << 16
_STEP_COST = 512
_OVERTAKING = 0.05  # seconds a token by which a question may be overtaken
_LAST_STEP = 0.5  # seconds that the step in progress has when the server ends


class PendingAnswer:
    """A question that waits or is being answered, for whoever asked it."""

    def __init__(self, question: AskedQuestion, due: float = 0.0) -> None:
        """due: when it came, later for a longer question; the queue is in this order."""
        self.question, self.due = question, due
        self.left = False  # nobody reads the answer any more
        self.done = False
        self._events: asyncio.Queue[Piece | Answered | BaseException] = asyncio.Queue()

    def tell(self, event: Piece | Answered | BaseException) -> None:
        """Add what is new of the answer; nothing is behind its end."""
        if not self.done:
            self.done = not isinstance(event, Piece)
            self._events.put_nowait(event)

    async def next(self) -> Piece | Answered:
        """What is new of the answer, the whole answer at the end. Raises what is wrong."""
        try:
            event = await self._events.get()
        except asyncio.CancelledError:
            self.left = True
            raise
        if isinstance(event, BaseException):
            raise event
        return event

    async def answer(self) -> Answered:
        """The whole answer."""
        while isinstance(event := await self.next(), Piece):
            pass
        return event


class Batcher:
    """Answers questions with a memory that only its own thread uses.

    What another process has taught is taken up before the next batch. To be used from one event
    loop.
    """

    def __init__(
        self, service: ServedMemory, waiting: int = WAITING, batch: int | None = None
    ) -> None:
        """waiting: the most questions that wait; batch: the most that are answered side by side."""
        self._service = service
        self._most, self._batch = waiting, batch or service.batch
        self._waiting: list[PendingAnswer] = []
        self._begun: set[PendingAnswer] = set()
        self._writing = 0  # answers that are being written
        self._steps: set[Future[Any]] = set()  # those that are not done
        self._ending = False
        self._room = asyncio.Event()
        self._draining: asyncio.Task[None] | None = None
        self._written: set[asyncio.Task[None]] = set()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="memory")
        self._told = ""

    @property
    def busy(self) -> bool:
        """Whether a question waits or is being answered."""
        begun = self._draining is not None and not self._draining.done()
        return begun or self._writing > 0

    def put(self, questions: Sequence[AskedQuestion]) -> list[PendingAnswer]:
        """Put questions into the queue.

        Raises HoldfastError for a question that is far too long, RefusalError when too many, or
        too long ones, wait and when the server ends.
        """
        for question in questions:
            if len(question.text) > LONGEST:
                raise HoldfastError(
                    f"the question has {len(question.text)} characters, and at most {LONGEST} are "
                    "read; ask a shorter one"
                )
        if self._ending:
            raise _ended()
        self._waiting = [one for one in self._waiting if not one.left]
        cost = sum(one.cost for one in (*(one.question for one in self._waiting), *questions))
        if len(self._waiting) + len(questions) > self._most or cost > _WAITING_COST:
            raise RefusalError(503, f"{len(self._waiting)} questions wait; ask again later", "busy")
        loop = asyncio.get_running_loop()
        now = loop.time()
        added = [PendingAnswer(one, now + _OVERTAKING * one.cost) for one in questions]
        for one in added:
            insort(self._waiting, one, key=lambda pending: pending.due)
        if self._draining is None or self._draining.done():
            self._draining = loop.create_task(self._drain())
        return added

    async def ask(self, questions: Sequence[str]) -> list[Answered]:
        """The answers, in order.

        Raises RefusalError when too many questions wait, HoldfastError for a question that is
        empty or too long.
        """
        return await whole(self.put([AskedQuestion(question) for question in questions]))

    async def call(self, function: Callable[[Any], Value]) -> Value:
        """The value of ``function(memory)``, called on the memory's thread, brought up to date."""

        def work() -> Value:
            self._refresh()
            return function(self._service.memory)

        return await self._on_thread(work)

    async def remembered(self) -> dict[str, Any]:
        """What is remembered by now."""
        return await self.call(lambda _: self._service.remembered())

    def end(self) -> None:
        """The server ends: whoever waits is told, and no further step is begun."""
        self._ending = True
        for step in tuple(self._steps):
            step.cancel()  # those that are not begun
        for asked in (*self._waiting, *self._begun):
            asked.tell(_ended())
        self._waiting.clear()

    async def close(self) -> bool:
        """End the thread; False where the step in progress does not end soon."""
        self.end()
        self._thread.shutdown(wait=False)
        running = [asyncio.wrap_future(step) for step in tuple(self._steps)]
        if not running:
            return True
        ended, left = await asyncio.wait(running, timeout=_LAST_STEP)
        for one in ended:
            one.cancelled() or one.exception()  # whoever waits for it is told
        return not left

    async def _on_thread(self, work: Callable[[], Value]) -> Value:
        self._refuse_at_end()
        step = self._thread.submit(work)
        self._steps.add(step)
        step.add_done_callback(self._steps.discard)
        try:
            return await asyncio.wrap_future(step)
        except asyncio.CancelledError:
            if step.cancelled():
                self._refuse_at_end()
            raise

    def _refuse_at_end(self) -> None:
        if self._ending:
            raise _ended()

    async def _drain(self) -> None:
        while self._waiting:
            while self._writing >= self._batch:
                self._room.clear()
                await self._room.wait()
            if batch := self._next():
                self._begun.update(batch)
                await self._begin(batch)

    def _next(self) -> list[PendingAnswer]:
        """Take the first questions that wait, as many as a step may cost, one at least."""
        batch: list[PendingAnswer] = []
        cost = 0
        while self._waiting and len(batch) < self._batch - self._writing:
            first = self._waiting[0]
            cost += 0 if first.left else first.question.cost
            if batch and cost > _STEP_COST:
                break
            del self._waiting[0]
            if not first.left:
                batch.append(first)
        return batch

    async def _begin(self, batch: list[PendingAnswer]) -> None:
        """Answer a batch as far as one step does; a task writes the rest."""
        questions = [asked.question for asked in batch]

        def work() -> tuple[Steps, list[tuple[int, Event]]]:
            self._refresh()
            steps = self._service.answering(questions)
            return steps, next(steps, [])

        try:
            steps, events = await self._on_thread(work)
        except Exception as error:  # noqa: BLE001 - whoever asked is told
            _tell_rest(batch, error)
            self._begun.difference_update(batch)
            return
        _tell(batch, events)
        if rest := sum(not asked.done for asked in batch):
            self._writing += rest
            task = asyncio.get_running_loop().create_task(self._write(batch, steps, rest))
            self._written.add(task)
            task.add_done_callback(self._written.discard)
        else:
            self._begun.difference_update(batch)

    async def _write(self, batch: list[PendingAnswer], steps: Steps, count: int) -> None:
        """Take the further steps of a batch until all is answered or nobody reads it any more."""
        try:
            while any(not (asked.done or asked.left) for asked in batch):
                events = await self._on_thread(lambda: next(steps, None))
                if events is None:
                    raise AssertionError("an answer has no end")
                _tell(batch, events)
        except Exception as error:  # noqa: BLE001 - whoever asked is told
            _tell_rest(batch, error)
        finally:
            with contextlib.suppress(ValueError):  # the server ends within a step
                steps.close()
            self._writing -= count
            self._begun.difference_update(batch)
            self._room.set()

    def _refresh(self) -> None:
        """Take up what was taught; a failure is logged once and the memory answers as before."""
        try:
            self._service.refresh()
            self._told = ""
        except HoldfastError as error:
            if self._told != str(error):
                self._told = str(error)
                logger.warning("what was taught since could not be loaded: %s", error)


def _ended() -> RefusalError:
    return RefusalError(503, "the server ends; ask again once it runs", "ending")


async def whole(asked: Sequence[PendingAnswer]) -> list[Answered]:
    """The whole answers, in order; raises what is wrong with the first that is wrong."""
    try:
        return [await one.answer() for one in asked]
    finally:
        for one in asked:
            one.left = True


def _tell(batch: Sequence[PendingAnswer], events: Sequence[tuple[int, Event]]) -> None:
    for number, event in events:
        batch[number].tell(event)


def _tell_rest(batch: Sequence[PendingAnswer], error: BaseException) -> None:
    for asked in batch:
        if not asked.done:
            asked.tell(error)
