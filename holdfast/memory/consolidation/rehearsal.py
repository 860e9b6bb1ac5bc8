"""Train one adapter to answer all facts and to keep the model's answers in its own texts.

A step minimizes, over some facts and some of the model's own texts,

    mean over facts of the cross-entropy of the answer
        + weight * mean over the own texts' answer tokens of KL(untouched || adapted);

the second term is eq. app-function-loss at temperature 1 on self-written replay. The adapter acts
at every token, so it can be merged into the model.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from holdfast.anchors.divergences import divergence
from holdfast.backbone.load import bfloat16_pays
from holdfast.core.seeding import derive, generator
from holdfast.memory.consolidation.own_texts import OwnTextSettings, Turn
from holdfast.memory.consolidation.steps import Steps, StepSettings, choose_wording
from holdfast.model.adapter import adapted, factors, reset
from holdfast.model.layers import shallow
from holdfast.model.reading import UNREAD, AnswerLogits, PromptReader

_KINDS = ("short", "named", "replaced", "chats")  # of own texts
_BFLOAT16 = "bfloat16"


@dataclass(frozen=True)
class ConsolidationSettings(StepSettings):
    """How all facts are learned into one adapter.

    start: the fraction of the decoder's layers, from the first, without adapter; rank: of the
    adapter; weight: of the KL; short, named, replaced, chats: own texts of each kind in a step;
    tokens: the most in one pass, which bounds the memory that a step takes.
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


def answers_behind(reader: PromptReader, turns: Sequence[Turn]) -> AnswerLogits:
    """Logits at the answers, in one pass; an adapter that acts reads the questions too."""
    behind = [[*turn.question, *reader.form.invocation] for turn in turns]
    return reader.answer_logits([UNREAD] * len(turns), [turn.answer for turn in turns], behind)


def passes(turns: Iterable[Turn], tokens: int) -> Iterator[list[Turn]]:
    """Group turns by length; a group has at most ``tokens`` tokens with padding, or one turn."""
    group: list[Turn] = []
    for turn in sorted(turns, key=lambda turn: turn.length):
        if group and (len(group) + 1) * turn.length > tokens:
            yield group
            group = []
        group.append(turn)
    if group:
        yield group


class UntouchedAnswers:
    """The untouched model's last hidden states at the answers of some turns."""

    def __init__(
        self,
        reader: PromptReader,
        turns: Iterable[Turn],
        tokens: int,
        report: Callable[[int, int], None] = lambda *_: None,
    ) -> None:
        """No adapter may act. tokens: the most in a pass; report(done, total): turns."""
        self._model = reader.model
        self._states: dict[Turn, torch.Tensor] = {}
        read: list[torch.Tensor] = []
        head = reader.model.get_output_embeddings()
        turns = dict.fromkeys(turns)
        with torch.no_grad(), head.register_forward_hook(lambda _, given, __: read.extend(given)):
            for group in passes(turns, tokens):
                answers_behind(reader, group)
                states = read.pop()[0].split([len(turn.answer) for turn in group])
                self._states |= zip(group, (part.clone() for part in states), strict=True)
                report(len(self._states), len(turns))

    @torch.no_grad()
    def logits(self, turns: Sequence[Turn]) -> torch.Tensor:
        """Logits [tokens, vocabulary] at the answers of some of the turns, one after another."""
        states = torch.cat([self._states[turn] for turn in turns])
        head = self._model.get_output_embeddings()
        # The model without its layers, not the head alone: it may cap the logits behind the head.
        with shallow(self._model, 0), head.register_forward_pre_hook(lambda *_: (states[None],)):
            ids = torch.zeros(1, 1, dtype=torch.long, device=states.device)
            logits: torch.Tensor = self._model(ids, use_cache=False).logits
        return logits[0]


class Rehearsal(Steps):
    """A run that trains the attached adapter on facts, a step at a time."""

    def __init__(
        self,
        reader: PromptReader,
        facts: Sequence[Sequence[Turn]],
        own: Sequence[Turn],
        settings: ConsolidationSettings,
        seed: int,
        report: Callable[[int, int], None] = lambda *_: None,
    ) -> None:
        """Reset the adapter's factors, and let the untouched model read its own texts once.

        facts: of each the taught question first, then other wordings and corruptions;
        report(done, total): own texts that are read.
        """
        reset(reader.model, generator(seed, "lora_A"))
        super().__init__(factors(reader.model), settings, len(facts), seed)
        self._reader, self._facts, self._settings = reader, facts, settings
        self._own = {kind: [turn for turn in own if turn.kind == kind] for kind in _KINDS}
        self._bfloat16 = next(reader.model.parameters()).dtype == torch.float32 and bfloat16_pays()
        turns = (turn for some in self._own.values() for turn in some)
        self._untouched = UntouchedAnswers(reader, turns, settings.tokens, report)

    def advance(self) -> tuple[float, float]:
        """Make one step; return its mean cross-entropy of facts and KL on own texts, in nats."""
        draw = random.Random(derive(self.seed, "consolidation", self.step))
        varied = self._settings.varied
        facts = [choose_wording(self._facts[n], varied, draw) for n in self.fact_numbers()]
        own = [turn for kind in _KINDS for turn in self._drawn(kind, draw)]
        tokens = sum(len(turn.answer) for turn in own)
        cross_entropy = mean_kl = 0.0
        self.begin_step()
        with adapted(self._reader.model), self._reader.trained_prefix(), self._autocast():
            for group in passes(facts, self._settings.tokens):
                loss = answers_behind(self._reader, group).losses().sum() / len(facts)
                loss.backward()
                cross_entropy += loss.item()
            for group in passes(own, self._settings.tokens):
                student = answers_behind(self._reader, group).logits
                teacher = self._untouched.logits(group)
                kl = divergence("forward_kl", teacher, student, 1.0).sum() / tokens
                (self._settings.weight * kl).backward()
                mean_kl += kl.item()
        torch.nn.utils.clip_grad_norm_(list(self.parameters.values()), 1.0)
        self.end_step()
        return cross_entropy, mean_kl

    def _drawn(self, kind: str, draw: random.Random) -> list[Turn]:
        """Own texts of a kind, drawn for a step."""
        turns = self._own[kind]
        return draw.sample(turns, min(getattr(self._settings, kind), len(turns)))

    def _autocast(self) -> torch.autocast:
        device = next(iter(self.parameters.values())).device.type
        return torch.autocast(device, torch.bfloat16, enabled=self._bfloat16)

    def tensors(self) -> dict[str, torch.Tensor]:
        """The tensors of :class:`Steps`, and whether the steps are made in bfloat16."""
        return {**super().tensors(), _BFLOAT16: torch.tensor(self._bfloat16)}

    def resume(self, step: int, tensors: Mapping[str, torch.Tensor]) -> None:
        """Continue as :class:`Steps` does, in the precision in which the run began."""
        super().resume(step, tensors)
        self._bfloat16 = bool(tensors.get(_BFLOAT16, False))
