"""The answer of a memory to a question, and its source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from holdfast.streams import Item

Source = Literal["weights", "list", "model"]


@dataclass(frozen=True)
class Answer:
    """A memory's answer to a question.

    question: as it was asked; text: the answer; source: ``weights`` if an adapter gives the taught
    answer, ``list`` if it does not and the list of facts answers, ``model`` if the question was not
    taught and the untouched model answers; fact: the taught fact, None for the untouched model;
    waiting: whether the list answers because the fact's lesson is not learned yet; further: other
    facts that the same message asks for, each answered in a line of ``text``.
    """

    question: str
    text: str
    source: Source
    fact: Item | None = None
    waiting: bool = False
    further: tuple[Item, ...] = ()

    @property
    def taught(self) -> bool:
        """Whether the answer was taught."""
        return self.source != "model"
