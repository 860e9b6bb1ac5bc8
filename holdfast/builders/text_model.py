"""A language model as text in, text out: what building a stream asks of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from pydantic import Field

from holdfast.core.config import Config


class SamplingParameters(Config):
    """How to sample. ``max_new_tokens`` is in tokens; a text ends before its first ``stop``."""

    samples: int = Field(1, ge=1)
    temperature: float = Field(0.7, gt=0)
    top_p: float = Field(0.95, gt=0, le=1)
    max_new_tokens: int = Field(64, ge=1)
    stop: tuple[str, ...] = ()
    seed: int = Field(0, ge=0)


@dataclass(frozen=True)
class Prompt:
    """What is asked. name: names the randomness of its samples, so unique where it is asked.

    text: to be continued as it stands; or, when ``system`` is given, the user's message of a chat.
    """

    name: str
    text: str
    system: str | None = None


@dataclass(frozen=True)
class Failure:
    """Why a prompt has no answer: never to be taken for an answer that is empty."""

    reason: str


Report = Callable[[int, int, str], None]  # items found, of how many, what is being done
Answer = list[str] | Failure  # as many texts as samples were asked for


class TextModel(Protocol):
    """A backbone of this machine, or an endpoint."""

    @property
    def name(self) -> str:
        """What manifests call it."""
        ...

    @property
    def batch(self) -> int:
        """How many prompts it likes to be given at once."""
        ...

    def answer(
        self, prompts: Sequence[Prompt], sampling: SamplingParameters
    ) -> Iterator[tuple[int, Answer]]:
        """Yield (place in ``prompts``, answer) in any order, each place once.

        Raises HoldfastError when the model as a whole cannot be asked (any longer).
        """
        ...
