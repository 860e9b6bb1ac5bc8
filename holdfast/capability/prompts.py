"""Few-shot prompts: worked examples written for Holdfast, then the question."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass
from importlib.resources import files

import yaml

from holdfast.core.errors import HoldfastError


@dataclass(frozen=True)
class FewShot:
    """The worked examples of a suite in one language.

    template: holds ``{question}`` and, at its end, ``{answer}``; examples: rendered, in order.
    """

    template: str
    examples: tuple[str, ...]

    @property
    def stop(self) -> str:
        """The text that begins a next problem, and so ends the answer."""
        return "\n" + self.template.partition("{question}")[0].rstrip()

    def prompt(self, question: str, shots: int) -> str:
        """The last ``shots`` examples and the question, up to the answer's position."""
        asked = _filled(self.template, question, "").rstrip()
        return "\n\n".join([*self.examples[len(self.examples) - shots :], asked])


@functools.cache
def few_shot(suite: str, language: str = "en") -> FewShot:
    """The packaged examples of a suite in a language.

    Raises HoldfastError when there are none in that language.
    """
    languages = yaml.safe_load(_text(suite))
    if language not in languages:
        raise HoldfastError(
            f'{suite}: there are no worked examples in the language "{language}", but in '
            f"{', '.join(sorted(languages))}; leave its file out"
        )
    given = languages[language]
    template = given["template"]
    return FewShot(
        template,
        tuple(_filled(template, one["question"], one["answer"]) for one in given["examples"]),
    )


def fingerprint(suite: str) -> str:
    """The sha256 of a suite's examples, recorded because they are part of every prompt."""
    return hashlib.sha256(_text(suite).encode()).hexdigest()


def _text(suite: str) -> str:
    return (files("holdfast.capability") / "few_shot" / f"{suite}.yaml").read_text("utf-8")


def _filled(template: str, question: str, answer: str) -> str:
    # Not str.format: questions hold braces.
    before, _, after = template.partition("{question}")
    return before + question + after.removesuffix("{answer}") + answer
