"""The text-in, text-out interface of a language model that the builders use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    """A prompt. name: unique, as it seeds the random numbers of the prompt's samples.

    text: to be continued as it is; or, if ``system`` is given, the user's message of a chat.
    """

    name: str
    text: str
    system: str | None = None


@dataclass(frozen=True)
class Failure:
    """Why a prompt has no answer; distinct from an empty answer."""

    reason: str


Answer = list[str] | Failure  # one text per sample


def text_before(stops: Sequence[str], text: str) -> str:
    """The text up to the first stop in it; empty stops are ignored."""
    return min((text.partition(stop)[0] for stop in stops if stop), key=len, default=text)


class TextModel(Protocol):
    """A local backbone, or an endpoint. name: in manifests; batch: the best number of prompts."""

    name: str
    batch: int

    @property
    def is_chat(self) -> bool:
        """Whether it takes prompts with a system message."""
        ...

    def answer(
        self, prompts: Sequence[Prompt], sampling: SamplingParameters
    ) -> Iterator[tuple[int, Answer]]:
        """Yield (place in ``prompts``, answer) in any order, each place once.

        Raises HoldfastError when the model as a whole fails, at once or later.
        """
        ...
