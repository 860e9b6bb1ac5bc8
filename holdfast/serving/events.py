"""Questions to a served memory and the events of their answers."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from holdfast.core.errors import HoldfastError

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
        """About how many tokens are read, from above; a memory bounds that too."""
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
