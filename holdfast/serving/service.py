"""What a server needs of a memory, the same for both kinds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from holdfast.core.errors import HoldfastError
from holdfast.memory.chat.states import LessonState

Value = TypeVar("Value")

NOT_TAUGHT = "I was not taught that."
_LEAST_COST, _MOST_COST = 16, 512
LONGEST = 4000  # characters of a question; longer ones are refused before they are read


@dataclass(frozen=True)
class AskedQuestion:
    """A question. most: tokens of an answer that the model writes itself, None for no bound."""

    text: str
    most: int | None = None

    @property
    def cost(self) -> int:
        """About how many tokens are read, from above; both kinds of memory bound that too."""
        return max(_LEAST_COST, min(len(self.text.encode(errors="replace")), _MOST_COST))


@dataclass(frozen=True)
class Piece:
    """A part of an answer that is still being written.

    content: the text that is new; values: what is known of the answer by now.
    """

    content: str
    values: dict[str, Any]


@dataclass(frozen=True)
class Answered:
    """What a memory answers.

    content: the whole text for a reader; values: what a program is told of it; question_tokens,
    answer_tokens: their lengths; finish: ``stop``, or ``length`` where the bound cut it.
    """

    content: str
    values: dict[str, Any]
    question_tokens: int
    answer_tokens: int
    finish: str = "stop"


Event = Piece | Answered | HoldfastError
Steps = Generator[list[tuple[int, Event]], None, None]  # each with its question's number


class OnThread(Protocol):
    """The value of ``function(memory)``, called on the thread that owns the memory."""

    def __call__(self, function: Callable[[Any], Value]) -> Awaitable[Value]: ...


class Teaching(Protocol):
    """What teaches a served memory."""

    @property
    def busy(self) -> bool:
        """Whether a lesson is learned or waits."""

    async def begin(self) -> None:
        """The server starts: what is on file and not learned yet is learned."""

    async def teach(self, facts: Any, paraphrases: int, *, wait: bool) -> tuple[int, Any]:
        """Teach facts: the status and the value of the response.

        facts: what :func:`holdfast.streams.python.facts_of_python` takes; paraphrases: other
        wordings of each; wait: respond once they are learned. Raises HoldfastError for facts that
        are refused, RefusalError when too many lessons wait.
        """

    def queued(self, after: int) -> list[LessonState]:
        """The lessons of requests that are not on file yet; after: how many are."""

    async def cancel(self, numbers: Collection[int]) -> None:
        """Cancel lessons that are not learned; the later ones move up."""

    def ending(self) -> None:
        """The server begins to end: stop the lesson, and tell whoever waits for one."""

    async def end(self) -> None:
        """The server ends: the lesson in progress is stopped, and the next one finishes it."""


class Service(Protocol):
    """A memory that is served. Only one thread calls it, but the event loop :meth:`lessons`.

    batch: how many questions it answers side by side, at most.
    """

    batch: int

    @property
    def memory(self) -> Any:
        """The memory, for what is done on its thread."""

    def refresh(self) -> bool:
        """Take up what another process has taught. Raises HoldfastError for what is damaged."""

    def answering(self, questions: Sequence[AskedQuestion]) -> Steps:
        """Answer questions, a step at a time.

        Yields what is new of them: a question's number, and a piece of its answer, the whole
        answer, or what is wrong with the question. The last event of every question is one of the
        latter two.
        """

    def remembered(self) -> dict[str, Any]:
        """What is remembered, for the page and for programs."""

    async def lessons(self, on_thread: OnThread) -> list[dict[str, Any]]:
        """The state of every lesson, as :func:`holdfast.memory.chat.states.state_values` tells."""

    def teaching(self, on_thread: OnThread) -> Teaching:
        """What teaches the memory."""
