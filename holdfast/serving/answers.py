"""A question to a served memory, and the events of its answer."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.serving.refusal import RefusalError

NOT_TAUGHT = "I was not taught that."
_LEAST_COST, _MOST_COST = 16, 512  # of a question, in tokens


@dataclass(frozen=True)
class AskedQuestion:
    """A question; most: tokens of an answer that the model writes; stops: it ends before them."""

    text: str
    most: int | None = None
    stops: tuple[str, ...] = ()

    @property
    def cost(self) -> int:
        """An upper estimate of the tokens to read: bytes, up to a memory's longest question."""
        return max(_LEAST_COST, min(len(self.text.encode(errors="replace")), _MOST_COST))


@dataclass(frozen=True)
class Piece:
    """New text of an answer that is being written; values: of the first, where that comes from."""

    content: str
    values: dict[str, Any]


@dataclass(frozen=True)
class Answered:
    """A whole answer; values: what programs get to know of it; finish: length if it was cut."""

    content: str
    values: dict[str, Any]
    question_tokens: int
    answer_tokens: int
    finish: str = "stop"


Event = Piece | Answered | HoldfastError | RefusalError
Steps = Generator[list[tuple[int, Event]], None, None]  # events with their question's number
