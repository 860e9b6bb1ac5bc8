"""Learn all facts at once into one adapter, from the untouched model, held to its own texts.

A step minimizes, over some facts and some of the model's own texts,

    mean over facts of the cross-entropy of the answer
        + weight * mean over the own texts' answer tokens of KL(untouched || adapted).

Every draw follows from the seed and the step's number, so a run that was killed continues from its
last state to the same bits.
"""

from __future__ import annotations

import math
import random
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F

from holdfast.core.seeding import derive, generator
from holdfast.memory.chat.consolidation.own_texts import OwnText, OwnTextSettings
from holdfast.model.adapter import adapted, factors, reset
from holdfast.model.reading import AnswerLogits, PromptReader, Reading

_WARMUP = 10  # steps
_READ = 8  # own texts at once


@dataclass(frozen=True)
class ConsolidationSettings:
    """How all facts are learned at once.

    start: the fraction of the decoder's layers that stay untouched; rank, lr: of the adapter and
    AdamW's, which falls to ``floor`` of it along half a cosine; facts: of a step; varied: the
    probability that a step takes another wording than the taught one; visits: times that each fact
    is learned; least: steps at least; weight: of the KL; short, named, replaced, chats: own texts
    of a step; whole: the adapter acts on every token, so that it can be merged, not from the answer
    on; cache: bytes of the questions' keys and values that are kept.
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
    whole: bool = False
    cache: int = 1_500_000_000
    own: OwnTextSettings = field(default_factory=OwnTextSettings)


def settings_of(*, mergeable: bool) -> ConsolidationSettings:
    """The settings of an adapter from the answer on, or of one that can be merged."""
    return ConsolidationSettings(whole=mergeable)


@dataclass(frozen=True)
class Rehearsed:
    """A fact. answer: its tokens; questions: its wordings' tokens, the taught one first."""

    answer: tuple[int, ...]
    questions: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class _Batch:
    """Questions with answers, side by side; readings: of the questions, unless whole."""

    questions: list[tuple[int, ...]]
    answers: list[tuple[int, ...]]
    readings: list[Reading]


@dataclass(frozen=True)
class RunState:
    """A run after ``step`` steps: ``<map>.lora_A`` and so on, with ``.mean`` and ``.square``."""

    step: int
    tensors: Mapping[str, torch.Tensor]


class Rehearsal:
    """A run that learns facts into the attached adapter, a step at a time."""

    def __init__(
        self,
        reader: PromptReader,
        facts: Sequence[Rehearsed],
        own: Mapping[str, Sequence[OwnText]],
        settings: ConsolidationSettings,
        seed: int,
    ) -> None:
        """own: by kind, as the settings name them; the adapter's factors are overwritten."""
        self._reader, self._facts, self._own = reader, facts, own
        self._settings, self._seed = settings, seed
        self._readings = _Readings(reader, _groups(facts, own), settings.cache)
        self.step = 0
        self.steps = max(settings.least, math.ceil(len(facts) * settings.visits / self._size))
        reset(reader.model, generator(seed, "lora_A"))
        self._parameters = {
            f"{name}.lora_{side}": tensor
            for name, pair in factors(reader.model).items()
            for side, tensor in zip("AB", pair, strict=True)
        }
        self._optimizer = torch.optim.AdamW(
            list(self._parameters.values()), lr=settings.lr, weight_decay=0.0
        )

    @property
    def _size(self) -> int:
        return min(self._settings.facts, len(self._facts))

    def advance(self) -> tuple[float, float]:
        """One step; the mean cross-entropy of its facts and the KL on its own texts, in nats."""
        draw = random.Random(derive(self._seed, "consolidation", self.step))
        for group in self._optimizer.param_groups:
            group["lr"] = self._rate()
        chosen = [self._facts[place] for place in self._places()]
        facts = self._batch(
            [self._worded(fact, draw) for fact in chosen], [fact.answer for fact in chosen]
        )
        own = [
            self._batch([text.question for text in group], [text.answer for text in group])
            for group in self._drawn(draw)
        ]
        with torch.no_grad():
            before = [self._logits(batch) for batch in own]
        tokens = sum(len(teacher.targets) for teacher in before)
        self._optimizer.zero_grad(set_to_none=True)
        with adapted(self._reader.model):
            fitted = self._logits(facts).losses().mean()
            fitted.backward()
            apart = 0.0
            for batch, teacher in zip(own, before, strict=True):
                share = divergence(teacher.logits, self._logits(batch).logits).sum() / tokens
                (self._settings.weight * share).backward()
                apart += share.item()
            torch.nn.utils.clip_grad_norm_(list(self._parameters.values()), 1.0)
            self._optimizer.step()
        self.step += 1
        return fitted.item(), apart

    def progress(self) -> RunState:
        """A copy of the run's state."""
        tensors: dict[str, torch.Tensor] = {}
        for name, tensor in self._parameters.items():
            tensors[name] = tensor.detach().clone()
            state = self._optimizer.state.get(tensor, {})
            if state:
                tensors[f"{name}.mean"] = state["exp_avg"].clone()
                tensors[f"{name}.square"] = state["exp_avg_sq"].clone()
        return RunState(self.step, tensors)

    def resume(self, progress: RunState) -> None:
        """Go on from a state. Raises KeyError or RuntimeError where it is of another adapter."""
        with torch.no_grad():
            for name, tensor in self._parameters.items():
                tensor.copy_(progress.tensors[name])
                if progress.step:
                    self._optimizer.state[tensor] = {
                        "step": torch.tensor(float(progress.step)),
                        "exp_avg": progress.tensors[f"{name}.mean"].clone(),
                        "exp_avg_sq": progress.tensors[f"{name}.square"].clone(),
                    }
        self.step = progress.step

    def _rate(self) -> float:
        settings = self._settings
        warm = min(1.0, (self.step + 1) / _WARMUP)
        fallen = (1 + math.cos(math.pi * self.step / self.steps)) / 2
        return settings.lr * warm * (settings.floor + (1 - settings.floor) * fallen)

    def _places(self) -> list[int]:
        """The facts of a step: all in random order, again and again."""
        count, places = len(self._facts), []
        for number in range(self.step * self._size, (self.step + 1) * self._size):
            order = list(range(count))
            random.Random(derive(self._seed, "epoch", number // count)).shuffle(order)
            places.append(order[number % count])
        return places

    def _worded(self, fact: Rehearsed, draw: random.Random) -> tuple[int, ...]:
        if len(fact.questions) > 1 and draw.random() < self._settings.varied:
            return draw.choice(fact.questions[1:])
        return fact.questions[0]

    def _drawn(self, draw: random.Random) -> list[list[OwnText]]:
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
        readings = [] if self._settings.whole else self._readings(questions)
        return _Batch(questions, answers, readings)

    def _logits(self, batch: _Batch) -> AnswerLogits:
        if self._settings.whole:
            return self._reader.whole_logits(batch.questions, batch.answers)
        return self._reader.answer_logits(batch.readings, batch.answers)


_Question = tuple[int, ...]


class _Readings:
    """Questions read by the untouched model; keys and values are kept as far as there is room.

    They are read in groups that never change, since rounding depends on what is read beside.
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
    facts: Sequence[Rehearsed], own: Mapping[str, Sequence[OwnText]]
) -> list[list[_Question]]:
    """The wordings of each fact, and own texts in eights."""
    groups = [list(dict.fromkeys(fact.questions)) for fact in facts]
    for texts in own.values():
        questions = list(dict.fromkeys(text.question for text in texts))
        groups += [questions[begin : begin + _READ] for begin in range(0, len(questions), _READ)]
    return groups


def divergence(before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
    """KL(untouched || adapted) in nats at every token [tokens], from logits."""
    p, q = F.log_softmax(before, 1), F.log_softmax(after, 1)
    return (p.exp() * (p - q)).sum(1)


def _size_of(group: Mapping[_Question, Reading]) -> int:
    layers = (layer for reading in group.values() for layer in reading.layers)
    return sum(side.numel() * side.element_size() for layer in layers for side in layer)
