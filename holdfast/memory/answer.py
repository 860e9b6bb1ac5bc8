"""An answer of a memory, and where it comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from holdfast.streams import Item

Source = Literal["weights", "list", "model"]


@dataclass(frozen=True)
class Answer:
    """What a memory answers.

    question: as it was asked; text: the answer; source: ``weights`` where an adapter gives what was
    taught, ``list`` where it gives something else and the list of facts answers, ``model`` for the
    untouched model, which answers what was not taught; fact: the taught fact; waiting: it comes
    from the list, since its lesson is not learned yet; further: more facts, for which the same
    message asks, and which the text answers in lines of their own.
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
