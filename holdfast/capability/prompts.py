"""Prompts: worked examples, then the question. Source: app:res-capability."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from importlib.resources import files

import yaml

from holdfast.core.errors import HoldfastError


@dataclass(frozen=True)
class FewShot:
    """The worked examples of a suite in one language, written for Holdfast.

    template: holds ``{question}`` and, at its end, ``{answer}``; examples: rendered, in order.
    """

    template: str
    examples: tuple[str, ...]

    @property
    def stop(self) -> str:
        """The text that begins another problem, and so ends the answer."""
        return "\n" + self.template.partition("{question}")[0].rstrip()

    def prompt(self, question: str, shots: int) -> str:
        """The last ``shots`` examples and the question, up to the answer's position."""
        asked = _filled(self.template, question, "").rstrip()
        return "\n\n".join([*self.examples[len(self.examples) - shots :], asked])


@functools.cache
def few_shot(suite: str, language: str = "en") -> FewShot:
    """The packaged examples of a suite; HoldfastError when there are none in that language."""
    languages = yaml.safe_load(examples_file(suite))
    if language not in languages:
        raise HoldfastError(
            f'{suite}: there are no worked examples in the language "{language}", but in '
            f"{', '.join(sorted(languages))}; leave its file out"
        )
    template, examples = languages[language]["template"], languages[language]["examples"]
    rendered = (_filled(template, example["question"], example["answer"]) for example in examples)
    return FewShot(template, tuple(rendered))


def examples_file(suite: str) -> str:
    """The text of the file with the worked examples of a suite."""
    name = "mmlu" if suite == "mmlu_redux" else suite
    return (files("holdfast.capability") / "few_shot" / f"{name}.yaml").read_text("utf-8")


def _filled(template: str, question: str, answer: str) -> str:
    # The question is filled in last, and not by str.format, because it may hold braces.
    return template.replace("{answer}", answer).replace("{question}", question)
