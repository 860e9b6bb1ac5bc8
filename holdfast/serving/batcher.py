"""Answers questions, which arrive one by one, in batches on the one thread that owns the memory.

Each step is a call on that thread, so other questions are answered between two tokens of an answer.
A step reads a bounded number of tokens, and short questions overtake long ones that came a little
earlier.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from bisect import insort
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.core.errors import HoldfastError
from holdfast.serving.answers import Answered, AskedQuestion, Event, Piece, Steps
from holdfast.serving.refusal import RefusalError

if TYPE_CHECKING:
    from holdfast.serving.served_memory import ServedMemory  # which loads torch


logger = logging.getLogger(__name__)
Value = TypeVar("Value")

LONGEST = 4000  # characters of a question; longer ones are refused before the model reads them
WAITING = 256  # questions; one more is refused
# Costs in tokens: the most that may wait, which is minutes of work; the most of a step, which is
# about a second.
_WAITING_COST = 1 << 16
_STEP_COST = 512
_OVERTAKING = 0.05  # seconds by which each token of its cost sets a question back
_LAST_STEP = 0.5  # seconds that the step in progress gets when the server ends


class PendingAnswer:
    """A question that waits or is being answered, with the events of its answer."""

    def __init__(self, question: AskedQuestion, due: float) -> None:
        self.question = question
        self.due = due  # the queue's order: when it came, set back for a long question
        self.left = False  # nobody reads the answer any more
        self.done = False
        self._events: asyncio.Queue[Piece | Answered | BaseException] = asyncio.Queue()

    def tell(self, event: Piece | Answered | BaseException) -> None:
        """Add an event of the answer; ignored after the answer's end."""
        if not self.done:
            self.done = not isinstance(event, Piece)
            self._events.put_nowait(event)

    async def next(self) -> Piece | Answered:
        """Wait for the next piece, or at the end the whole answer. Raises the answer's error."""
        event = await self._events.get()
        if isinstance(event, BaseException):
            raise event
        return event

    async def answer(self) -> Answered:
        while isinstance(event := await self.next(), Piece):
            pass
        return event


@dataclass
class _Batch:
    """Questions that are answered in one pass of the model."""

    asked: list[PendingAnswer]
    steps: Steps | None = None  # None before the first
    writing: int = 0  # answers that its first step did not end


class Batcher:
    """Answers questions with a memory that only its own thread uses.

    What another process has taught is loaded before the next batch. For use from one event loop.
    """

    def __init__(self, service: ServedMemory) -> None:
        self._service = service
        self._waiting: list[PendingAnswer] = []
        self._batches: list[_Batch] = []  # being answered
        self._steps: dict[Future[Any], asyncio.Future[Any]] = {}  # not done yet, and who waits
        self._ending = False
        self._working: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="memory")
        self._last_failure = ""

    @property
    def busy(self) -> bool:
        """Whether a question waits or is being answered."""
        return self._working is not None and not self._working.done()

    def put(self, questions: Sequence[AskedQuestion]) -> list[PendingAnswer]:
        """Put questions into the queue; refuse too long ones, too many, and all at the end."""
        for question in questions:
            if len(question.text) > LONGEST:
                raise HoldfastError(
                    f"the question has {len(question.text)} characters, and at most {LONGEST} are "
                    "read; ask a shorter one"
                )
        self._refuse_at_end()
        self._waiting = [pending for pending in self._waiting if not pending.left]
        asked = [*(pending.question for pending in self._waiting), *questions]
        cost = sum(question.cost for question in asked)
        if len(asked) > WAITING or cost > _WAITING_COST:
            raise RefusalError(503, f"{len(self._waiting)} questions wait; ask again later", "busy")
        loop = asyncio.get_running_loop()
        added = [
            PendingAnswer(question, loop.time() + _OVERTAKING * question.cost)
            for question in questions
        ]
        for pending in added:
            insort(self._waiting, pending, key=lambda pending: pending.due)
        if not self.busy:
            self._working = loop.create_task(self._work())
        return added

    async def call(self, function: Callable[[Any], Value]) -> Value:
        """The value of ``function(memory)``, called on the memory's thread after a refresh."""

        def work() -> Value:
            self._refresh()
            return function(self._service.memory)

        return await self._on_thread(work)

    def end(self) -> None:
        """The server ends: all who wait get an error, and no further step begins."""
        self._ending = True
        for waiting in tuple(self._steps.values()):
            waiting.cancel()  # and its step, if that has not begun
        begun = [asked for batch in self._batches for asked in batch.asked]
        for asked in (*self._waiting, *begun):
            asked.tell(_ended())
        self._waiting.clear()

    async def close(self) -> bool:
        """End the thread; False if the step in progress does not end soon."""
        self.end()
        self._thread.shutdown(wait=False)
        _, unfinished = await asyncio.to_thread(wait, tuple(self._steps), _LAST_STEP)
        return not unfinished

    async def _on_thread(self, work: Callable[[], Value]) -> Value:
        self._refuse_at_end()
        step = self._thread.submit(work)
        waiting: asyncio.Future[Value] = asyncio.wrap_future(step)
        self._steps[step] = waiting
        step.add_done_callback(self._steps.pop)
        try:
            return await waiting
        except asyncio.CancelledError:
            self._refuse_at_end()
            raise

    def _refuse_at_end(self) -> None:
        if self._ending:
            raise _ended()

    async def _work(self) -> None:
        """Begin what waits and take a step of every batch, in turn, until all is answered."""
        while self._waiting or self._batches:
            if asked := self._next():
                self._batches.append(_Batch(asked))
            for batch in tuple(self._batches):
                await self._step(batch)

    def _next(self) -> list[PendingAnswer]:
        """Take the first waiting questions within a step's cost, at least one if it has room."""
        room = self._service.max_answers - sum(batch.writing for batch in self._batches)
        asked: list[PendingAnswer] = []
        cost = 0
        while self._waiting and len(asked) < room:
            first = self._waiting[0]
            cost += 0 if first.left else first.question.cost
            if asked and cost > _STEP_COST:
                break
            del self._waiting[0]
            if not first.left:
                asked.append(first)
        return asked

    async def _step(self, batch: _Batch) -> None:
        """Take one step of a batch; remove it once every answer has ended or has no reader."""

        def work() -> tuple[Steps, list[tuple[int, Event]] | None]:
            steps = batch.steps
            if steps is None:
                self._refresh()
                steps = self._service.answering([asked.question for asked in batch.asked])
            return steps, next(steps, None)

        is_first = batch.steps is None
        try:
            batch.steps, events = await self._on_thread(work)
            if events is None:
                raise AssertionError("an answer has no end")
        except Exception as error:  # noqa: BLE001 - whoever asked is told
            events = []
            for asked in batch.asked:
                asked.tell(error)
        for number, event in events:
            batch.asked[number].tell(event)
        if is_first:
            batch.writing = sum(not asked.done for asked in batch.asked)
        if all(asked.done or asked.left for asked in batch.asked):
            self._batches.remove(batch)
            if batch.steps is not None:
                with contextlib.suppress(ValueError):  # its step still runs when the server ends
                    batch.steps.close()

    def _refresh(self) -> None:
        """Load what was taught; a failure is logged once, and the memory answers as before."""
        try:
            self._service.memory.refresh()
            self._last_failure = ""
        except HoldfastError as error:
            if self._last_failure != str(error):
                self._last_failure = str(error)
                logger.warning("what was taught since could not be loaded: %s", error)


def _ended() -> RefusalError:
    return RefusalError(503, "the server ends; ask again once it runs", "ending")


@contextlib.contextmanager
def reading(asked: Sequence[PendingAnswer]) -> Iterator[None]:
    """After the block, mark these answers as not read any more."""
    try:
        yield
    finally:
        for pending in asked:
            pending.left = True


async def whole(asked: Sequence[PendingAnswer]) -> list[Answered]:
    """The whole answers, in order; raises the error of the first that has one."""
    with reading(asked):
        return [await pending.answer() for pending in asked]
