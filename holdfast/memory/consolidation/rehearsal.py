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
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from holdfast.anchors.divergences import divergence
from holdfast.core.seeding import derive, generator
from holdfast.memory.consolidation.own_texts import OwnText, OwnTextSettings
from holdfast.memory.consolidation.steps import Steps, choose_wording
from holdfast.model.adapter import adapted, factors, reset
from holdfast.model.reading import AnswerLogits, PromptReader, Reading

_READ = 8  # own texts at once


@dataclass(frozen=True)
class ConsolidationSettings:
    """How all facts are learned at once.

    start: the fraction of the decoder's layers that stay untouched; rank, lr: of the adapter and
    AdamW's, which falls to ``floor`` of it along half a cosine; facts: of a step; varied: the
    probability that a step takes another wording than the taught one; visits: times that each fact
    is learned; least: steps at least; weight: of the KL; short, named, replaced, chats: own texts
    of a step; cache: bytes of the questions' keys and values that are kept.
    """

    start: float = 0.33
    rank: int = 32
    lr: float = 1e-3
    floor: float = 0.1
    facts: int = 24
    varied: float = 0.5
    visits: int = 30
    least: int = 60
    weight: float = 3.0
    short: int = 6
    named: int = 2
    replaced: int = 2
    chats: int = 1
    cache: int = 1_500_000_000
    own: OwnTextSettings = field(default_factory=OwnTextSettings)


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
        self._readings = Readings(reader, _groups(facts, own), settings.cache)

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
        return _Batch(self._readings(questions), answers)

    def _logits(self, batch: _Batch) -> AnswerLogits:
        return self._reader.answer_logits(batch.readings, batch.answers)


_Question = tuple[int, ...]


class Readings:
    """Questions read by the untouched model; keys and values are kept as far as there is room.

    They are read in groups that never change, since rounding depends on what is read beside.
    Calling it with questions gives their readings, in order.
    """

    def __init__(
        self, reader: PromptReader, groups: Sequence[Sequence[_Question]], room: int
    ) -> None:
        """room: in bytes."""
        self._reader, self._groups, self._room = reader, groups, room
        self._place = {one: place for place, group in enumerate(groups) for one in group}
        self._kept: OrderedDict[int, dict[_Question, Reading]] = OrderedDict()
        self._bytes = 0

    def __call__(self, questions: Sequence[_Question]) -> list[Reading]:
        found: dict[_Question, Reading] = {}
        for one in questions:
            if one not in found:
                found |= self._group(self._place[one])
        return [found[one] for one in questions]

    def _group(self, place: int) -> dict[_Question, Reading]:
        if place in self._kept:
            self._kept.move_to_end(place)
            return self._kept[place]
        group = list(self._groups[place])
        read = dict(zip(group, self._reader.read(group), strict=True))
        self._kept[place] = read
        self._bytes += _size_of(read)
        while self._bytes > self._room:
            self._bytes -= _size_of(self._kept.popitem(last=False)[1])
        return read


def _groups(
    facts: Sequence[RehearsalFact], own: Mapping[str, Sequence[OwnText]]
) -> list[list[_Question]]:
    """The wordings of each fact, and own texts in eights."""
    groups = [list(dict.fromkeys(fact.questions)) for fact in facts]
    for texts in own.values():
        questions = list(dict.fromkeys(text.question for text in texts))
        groups += [questions[begin : begin + _READ] for begin in range(0, len(questions), _READ)]
    return groups


def _size_of(group: Mapping[_Question, Reading]) -> int:
    layers = (layer for reading in group.values() for layer in reading.layers)
    return sum(side.numel() * side.element_size() for layer in layers for side in layer)
