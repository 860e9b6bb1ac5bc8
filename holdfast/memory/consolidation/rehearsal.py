"""Learn all facts at once into one adapter, from the untouched model, held to its own texts.

A step minimizes, over some facts and some of the model's own texts,

    mean over facts of the cross-entropy of the answer
        + weight * mean over the own texts' answer tokens of KL(untouched || adapted);

the second term is eq. app-function-loss at temperature 1 on self-written replay. The adapter acts
at every token, so it can be merged into the model.

Every draw follows from the seed and the step's number, so a run that was killed continues from its
last state to the same bits.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from holdfast.anchors.divergences import divergence
from holdfast.core.seeding import derive, generator
from holdfast.memory.consolidation.own_texts import OwnText, OwnTextSettings
from holdfast.memory.consolidation.steps import Steps, StepSettings, choose_wording
from holdfast.model.adapter import adapted, factors, reset
from holdfast.model.reading import UNREAD, AnswerLogits, PromptReader


@dataclass(frozen=True)
class ConsolidationSettings(StepSettings):
    """How all facts are learned at once into an adapter.

    start: the fraction of the decoder's layers that stay untouched; rank: of the adapter; weight:
    of the KL; short, named, replaced, chats: own texts of a step; tokens: of one pass, which bounds
    the memory that a step takes.
    """

    start: float = 0.0
    rank: int = 64
    weight: float = 30.0
    short: int = 72
    named: int = 12
    replaced: int = 12
    chats: int = 6
    tokens: int = 512
    own: OwnTextSettings = field(
        default_factory=lambda: OwnTextSettings(short=4096, named=512, chats=128, tokens=24)
    )


@dataclass(frozen=True)
class RehearsalFact:
    """A fact. answer: its tokens; questions: its wordings' tokens, the taught one first."""

    answer: tuple[int, ...]
    questions: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class _Turn:
    """A question's tokens and its answer's."""

    question: tuple[int, ...]
    answer: tuple[int, ...]

    @property
    def length(self) -> int:
        return len(self.question) + len(self.answer)


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
        facts = [
            _Turn(choose_wording(fact.questions, self._settings.varied, draw), fact.answer)
            for fact in chosen
        ]
        own = [
            _Turn(text.question, text.answer)
            for kind in ("short", "named", "replaced", "chats")
            for text in self._drawn(kind, draw)
        ]
        tokens = sum(len(turn.answer) for turn in own)
        cross_entropy = mean_kl = 0.0
        self.begin_step()
        model = self._reader.model
        with adapted(model), self._reader.trained_prefix():
            for group in self._passes(facts):
                loss = self._logits(group).losses().sum() / len(facts)
                loss.backward()
                cross_entropy += loss.item()
        for group in self._passes(own):
            with torch.no_grad():
                teacher = self._logits(group).logits
            with adapted(model), self._reader.trained_prefix():
                student = self._logits(group).logits
                kl = divergence("forward_kl", teacher, student, 1.0).sum() / tokens
                (self._settings.weight * kl).backward()
                mean_kl += kl.item()
        torch.nn.utils.clip_grad_norm_(list(self.parameters.values()), 1.0)
        self.end_step()
        return cross_entropy, mean_kl

    def _drawn(self, kind: str, draw: random.Random) -> list[OwnText]:
        """The own texts of a kind for a step."""
        texts = self._own.get(kind, ())
        return draw.sample(list(texts), min(getattr(self._settings, kind), len(texts)))

    def _passes(self, turns: Sequence[_Turn]) -> Iterator[list[_Turn]]:
        """Turns of similar length, as many at once as a pass may have tokens."""
        group: list[_Turn] = []
        for turn in sorted(turns, key=lambda turn: turn.length):
            if group and (len(group) + 1) * turn.length > self._settings.tokens:
                yield group
                group = []
            group.append(turn)
        if group:
            yield group

    def _logits(self, turns: Sequence[_Turn]) -> AnswerLogits:
        """Logits at the answers; what acts now reads the questions too."""
        behind = [[*turn.question, *self._reader.form.invocation] for turn in turns]
        answers = [turn.answer for turn in turns]
        return self._reader.answer_logits([UNREAD] * len(turns), answers, behind)
