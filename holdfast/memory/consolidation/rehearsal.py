"""Learn all facts at once into one adapter, from the untouched model, held to its own texts.

A step minimizes, over some facts and some of the model's own texts,

    mean over facts of the cross-entropy of the answer
        + weight * mean over the own texts' answer tokens of KL(untouched || adapted);

the second term is eq. app-function-loss at temperature 1 on self-written replay.

Every draw follows from the seed and the step's number, so a run that was killed continues from its
last state to the same bits.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from holdfast.anchors.divergences import divergence
from holdfast.core.seeding import derive, generator
from holdfast.memory.consolidation.own_texts import OwnText
from holdfast.memory.consolidation.steps import Steps, StepSettings, choose_wording
from holdfast.model.adapter import adapted, factors, reset
from holdfast.model.answer_logits import AnswerLogits
from holdfast.model.reading import PromptReader, Reading


@dataclass(frozen=True)
class ConsolidationSettings(StepSettings):
    """How all facts are learned at once into an adapter.

    start: the fraction of the decoder's layers that stay untouched; rank: of the adapter; weight:
    of the KL; short, named, replaced, chats: own texts of a step.
    """

    start: float = 0.33
    rank: int = 32
    weight: float = 3.0
    short: int = 6
    named: int = 2
    replaced: int = 2
    chats: int = 1


@dataclass(frozen=True)
class RehearsalFact:
    """A fact. answer: its tokens; questions: its wordings' tokens, the taught one first."""

    answer: tuple[int, ...]
    questions: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class _Batch:
    """Questions that were read with answers, side by side."""

    readings: list[Reading]
    answers: list[tuple[int, ...]]


class Rehearsal(Steps):
    """A run that learns facts into the attached adapter, a step at a time."""

    def __init__(
        self,
        reader: PromptReader,
        facts: Sequence[RehearsalFact],
        own: Mapping[str, Sequence[OwnText]],
        settings: ConsolidationSettings,
        seed: int,
    ) -> None:
        """own: by kind, as the settings name them; the adapter's factors are overwritten."""
        reset(reader.model, generator(seed, "lora_A"))
        parameters = {
            f"{name}.lora_{side}": tensor
            for name, pair in factors(reader.model).items()
            for side, tensor in zip("AB", pair, strict=True)
        }
        super().__init__(parameters, settings, len(facts), seed)
        self._reader, self._facts, self._own = reader, facts, own
        self._settings = settings

    def advance(self) -> tuple[float, float]:
        """One step; the mean cross-entropy of its facts and the KL on its own texts, in nats."""
        draw = random.Random(derive(self.seed, "consolidation", self.step))
        chosen = [self._facts[place] for place in self.fact_numbers()]
        facts = self._batch(
            [choose_wording(fact.questions, self._settings.varied, draw) for fact in chosen],
            [fact.answer for fact in chosen],
        )
        own = [
            self._batch([text.question for text in group], [text.answer for text in group])
            for group in self._choose_own_texts(draw)
        ]
        with torch.no_grad():
            teachers = [self._logits(batch) for batch in own]
        tokens = sum(len(teacher.targets) for teacher in teachers)
        self.begin_step()
        with adapted(self._reader.model):
            cross_entropy = self._logits(facts).losses().mean()
            cross_entropy.backward()
            mean_kl = 0.0
            for batch, teacher in zip(own, teachers, strict=True):
                student = self._logits(batch).logits
                kl = divergence("forward_kl", teacher.logits, student, 1.0).sum() / tokens
                (self._settings.weight * kl).backward()
                mean_kl += kl.item()
            torch.nn.utils.clip_grad_norm_(list(self.parameters.values()), 1.0)
        self.end_step()
        return cross_entropy.item(), mean_kl

    def _choose_own_texts(self, draw: random.Random) -> list[list[OwnText]]:
        """The own texts of a step, short ones and chats apart, since they differ in length."""
        settings, groups = self._settings, []
        for kinds in (("short", "named", "replaced"), ("chats",)):
            group: list[OwnText] = []
            for kind in kinds:
                texts, count = self._own.get(kind, ()), getattr(settings, kind)
                group += draw.sample(list(texts), min(count, len(texts)))
            if group:
                groups.append(group)
        return groups

    def _batch(self, questions: list[tuple[int, ...]], answers: list[tuple[int, ...]]) -> _Batch:
        return _Batch(self._reader.read(questions), answers)

    def _logits(self, batch: _Batch) -> AnswerLogits:
        return self._reader.answer_logits(batch.readings, batch.answers)
