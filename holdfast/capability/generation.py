"""Suites scored by generated text: GSM8K, MATH and MGSM.

Source: app:res-capability.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from holdfast.backbone.generation.decoding import decode_greedily
from holdfast.backbone.model import Backbone
from holdfast.backbone.sequences import batches_by_length
from holdfast.capability import problems
from holdfast.capability.answers import Checker, Kind, extract
from holdfast.capability.problems import OPENING, Problem, Sample
from holdfast.core.errors import HoldfastError
from holdfast.evaluation.text import tokens_of

# Positions of a batch's rows at their full length. Samples are stored batch by batch.
_TOKENS_IN_CACHE = 65536


@dataclass(frozen=True)
class Asked:
    """A tokenized prompt. shots: its examples; room: tokens for the answer; stop: what ends it."""

    item: Problem
    text: str
    tokens: list[int]
    shots: int
    room: int
    stop: str


@dataclass(frozen=True)
class GeneratedSuite:
    """Problems that a model solves step by step, after worked examples, by greedy decoding.

    read: reads the problems below a folder, or from the hub (None); kind: of answer;
    shots: worked examples before the question; new_tokens: the longest answer.

    If the model's context is too short, the answer is limited to half of it, and examples are
    dropped, the first one first, until prompt and answer fit. A question is never cut: if it alone
    is too long, the answer gets fewer tokens, or none. The replay token precedes the prompt of a
    model that was trained with it.

    Source: app:res-capability, app:replay-seed.
    """

    name: str
    read: Callable[[Path | None], list[Problem]]
    kind: Kind
    shots: int = 4
    new_tokens: int = 512

    @property
    def settings(self) -> dict[str, Any]:
        examples = hashlib.sha256(_examples(self.name).encode()).hexdigest()
        room = {"shots": self.shots, "new_tokens": self.new_tokens}
        return {**room, "examples": examples, **OPENING}

    def items(self, data_root: Path | None) -> list[Problem]:
        """All problems; HoldfastError if missing, damaged or in a language without examples."""
        items = self.read(data_root)
        for language in {self.language(item) for item in items}:
            few_shot(self.name, language)
        return items

    def check(self, backbone: Backbone) -> None:
        """Raise HoldfastError when math-verify is not installed; any model is accepted."""
        Checker()

    def answer(self, backbone: Backbone, items: Sequence[Problem]) -> Iterator[Sample]:
        """Yield a sample of each item, batch by batch, the longest prompts first.

        details: ``shots``, how many examples fitted; ``tokens``, how many were generated; ``ended``
        by ``stop`` (a next problem or a stop token), ``length`` or ``no room``.
        """
        prompts = [self.asked(backbone, item) for item in items]
        with closing(Checker()) as checker:
            sizes = [len(prompt.tokens) + prompt.room for prompt in prompts]
            for places in batches_by_length(sizes, _TOKENS_IN_CACHE):
                batch = [prompts[place] for place in places]
                outputs = decode_greedily(
                    backbone,
                    [prompt.tokens for prompt in batch],
                    [prompt.room for prompt in batch],
                    functools.partial(_stopped, backbone, [prompt.stop for prompt in batch]),
                    tokens_in_cache=_TOKENS_IN_CACHE,
                )
                for prompt, tokens in zip(batch, outputs, strict=True):
                    yield self._sample(backbone, prompt, tokens, checker)

    def language(self, item: Problem) -> str:
        """The language of an item's question."""
        return item.group if self.name == "mgsm" else "en"

    def asked(self, backbone: Backbone, item: Problem) -> Asked:
        """The prompt of an item for a model's context, and the room for its answer."""
        examples = few_shot(self.name, self.language(item))
        context = backbone.positions
        room = self.new_tokens if context is None else min(self.new_tokens, context // 2)
        for shots in range(self.shots, -1, -1):
            text = examples.prompt(item.prompt, shots)
            tokens = [*backbone.opening, *tokens_of(backbone, text)]
            available = room if context is None else context - len(tokens)
            if available >= room:
                break
        return Asked(item, text, tokens, shots, max(0, min(room, available)), examples.stop)

    def _sample(
        self, backbone: Backbone, asked: Asked, tokens: list[int], checker: Checker
    ) -> Sample:
        item, text = asked.item, backbone.decode(tokens)
        output = text.partition(asked.stop)[0]
        extracted = extract(output, self.kind, self.language(item))
        correct = checker.correct(extracted, item.target)
        stopped = output != text or not backbone.stop_tokens.isdisjoint(tokens[-1:])
        ended = "no room" if not asked.room else "stop" if stopped else "length"
        details = {"shots": asked.shots, "tokens": len(tokens), "ended": ended}
        prompt, target = asked.text, item.target
        return Sample(item.id, item.group, prompt, output, extracted, target, correct, details)


def _stopped(backbone: Backbone, stops: Sequence[str], row: int, tokens: list[int]) -> bool:
    """Whether a row's tokens end with its stop, the beginning of another problem."""
    # A token has at least one byte, so these last tokens hold any stop that is just complete.
    return stops[row] in backbone.decode(tokens[-len(stops[row].encode()) - 1 :])


GSM8K = GeneratedSuite("gsm8k", problems.gsm8k, "number")
MATH = GeneratedSuite("math", problems.math, "expression")
MGSM = GeneratedSuite("mgsm", problems.mgsm, "number")


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
    languages = yaml.safe_load(_examples(suite))
    if language not in languages:
        raise HoldfastError(
            f'{suite}: there are no worked examples in the language "{language}", but in '
            f"{', '.join(sorted(languages))}; leave its file out"
        )
    template, examples = languages[language]["template"], languages[language]["examples"]
    rendered = (_filled(template, example["question"], example["answer"]) for example in examples)
    return FewShot(template, tuple(rendered))


def _examples(suite: str) -> str:
    return (files("holdfast.capability") / "few_shot" / f"{suite}.yaml").read_text("utf-8")


def _filled(template: str, question: str, answer: str) -> str:
    # The question is filled in last, and not by str.format, because it may hold braces.
    return template.replace("{answer}", answer).replace("{question}", question)
