"""Train an adapter, or neurons, to answer all facts: what a step minimizes, and the state to keep.

A step of an adapter minimizes, over some facts and some of the model's own texts,

    mean over facts of the cross-entropy of the answer
        + weight * mean over the own texts' answer tokens of KL(untouched || adapted);

the second term is eq. app-function-loss at temperature 1 on self-written replay. The adapter acts
at every token, so it can be merged into the model. A step of neurons minimizes the first term
alone: they fire in no other text, so nothing has to protect it.

Every draw follows from the seed and the step's number, so a run that was killed continues from its
last state to the same bits.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TypeVar

import torch

from holdfast.anchors.divergences import divergence
from holdfast.core.seeding import derive, generator
from holdfast.memory.consolidation.names import NamedFact
from holdfast.memory.consolidation.own_texts import OwnTextSettings, Turn
from holdfast.model.adapter import adapted, factors, reset
from holdfast.model.hardware import bfloat16_pays
from holdfast.model.layers import plain_attention, shallow
from holdfast.model.neurons import Neurons, acting
from holdfast.model.reading import UNREAD, AnswerLogits, PromptReader, Reading

_WARMUP = 10  # steps
_KINDS = ("short", "named", "replaced", "chats")  # of own texts
_BFLOAT16 = "bfloat16"
_Worded = TypeVar("_Worded")


@dataclass(frozen=True)
class StepSettings:
    """Settings of every run, into an adapter or into neurons.

    lr: AdamW's, which falls to ``floor`` of it along half a cosine; facts: in a step; varied: the
    probability that a step takes another wording than the taught one; corrupted: the most
    corruptions of a fact's wordings; visits: how often each fact is taken; least: the fewest steps;
    own: the model's own texts.
    """

    lr: float = 7e-4
    floor: float = 0.05
    facts: int = 32
    varied: float = 0.7
    corrupted: int = 16
    visits: int = 240
    least: int = 60
    own: OwnTextSettings = field(default_factory=OwnTextSettings)


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


@dataclass(frozen=True)
class NeuronSettings(StepSettings):
    """How facts are learned into neurons.

    lr: in units of the residual stream; begin, end: the layers between these fractions of the
    decoder get neurons.
    """

    lr: float = 0.04
    floor: float = 0.1
    facts: int = 24
    visits: int = 60
    begin: float = 0.1
    end: float = 0.34


class Steps:
    """Parameters that AdamW trains, in steps of some facts each.

    step: how many steps are made; steps: how many there are.
    """

    def __init__(
        self,
        parameters: Mapping[str, torch.Tensor],
        settings: StepSettings,
        facts: int,
        seed: int,
        betas: tuple[float, float] = (0.9, 0.999),
    ) -> None:
        """parameters: by name, trained in place; facts: their number."""
        self.parameters = dict(parameters)
        self._count, self.seed = facts, seed
        self._lr, self._floor = settings.lr, settings.floor
        self._size = min(settings.facts, facts)
        self.step = 0
        self.steps = max(settings.least, math.ceil(facts * settings.visits / self._size))
        self._optimizer = torch.optim.AdamW(
            list(self.parameters.values()), lr=settings.lr, betas=betas, weight_decay=0.0
        )

    def fact_numbers(self) -> list[int]:
        """The numbers of this step's facts, from a new random order of all facts in each epoch."""
        facts: list[int] = []
        while missing := self._size - len(facts):
            epoch, begin = divmod(self.step * self._size + len(facts), self._count)
            order = list(range(self._count))
            random.Random(derive(self.seed, "epoch", epoch)).shuffle(order)
            facts += order[begin : begin + missing]
        return facts

    def begin_step(self) -> None:
        """Set the learning rate and clear the gradients."""
        warmup = min(1.0, (self.step + 1) / _WARMUP)
        decay = (1 + math.cos(math.pi * self.step / self.steps)) / 2
        for group in self._optimizer.param_groups:
            group["lr"] = self._lr * warmup * (self._floor + (1 - self._floor) * decay)
        self._optimizer.zero_grad(set_to_none=True)

    def end_step(self) -> None:
        """Update the parameters by their gradients, and count the step."""
        self._optimizer.step()
        self.step += 1

    def tensors(self) -> dict[str, torch.Tensor]:
        """The parameters by name, and AdamW's moments of them as ``.mean`` and ``.square``."""
        tensors: dict[str, torch.Tensor] = {}
        for name, parameter in self.parameters.items():
            tensors[name] = parameter.detach().clone()
            if state := self._optimizer.state.get(parameter):
                tensors[f"{name}.mean"] = state["exp_avg"].clone()
                tensors[f"{name}.square"] = state["exp_avg_sq"].clone()
        return tensors

    def resume(self, step: int, tensors: Mapping[str, torch.Tensor]) -> None:
        """Continue from the :meth:`tensors` after ``step`` steps; KeyError if one is missing."""
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.copy_(tensors[name])
                if step:
                    self._optimizer.state[parameter] = {
                        "step": torch.tensor(float(step)),
                        "exp_avg": tensors[f"{name}.mean"].clone(),
                        "exp_avg_sq": tensors[f"{name}.square"].clone(),
                    }
        self.step = step


def choose_wording(questions: Sequence[_Worded], varied: float, draw: random.Random) -> _Worded:
    """The first question, or with probability ``varied`` one of the others, if there are any."""
    if len(questions) > 1 and draw.random() < varied:
        return draw.choice(questions[1:])
    return questions[0]


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
    """The untouched model's last hidden states at the answers of turns, read when first needed.

    A turn is read alone, so the others that a step or a continued run reads do not change a bit.
    """

    def __init__(self, reader: PromptReader) -> None:
        self._reader = reader
        self._states: dict[Turn, torch.Tensor] = {}

    @torch.no_grad()
    def read(self, turns: Iterable[Turn]) -> None:
        """Read those of the turns that are not read yet; no adapter may act."""
        read: list[torch.Tensor] = []
        head = self._reader.model.get_output_embeddings()
        with head.register_forward_hook(lambda _, given, __: read.extend(given)):
            for turn in turns:
                if turn not in self._states:
                    answers_behind(self._reader, [turn])
                    self._states[turn] = read.pop()[0].clone()

    @torch.no_grad()
    def logits(self, turns: Sequence[Turn]) -> torch.Tensor:
        """Logits [tokens, vocabulary] at the answers of turns that are read, one after another."""
        model = self._reader.model
        states = torch.cat([self._states[turn] for turn in turns])
        head = model.get_output_embeddings()
        # The model without its layers, not the head alone: it may cap the logits behind the head.
        with shallow(model, 0), head.register_forward_pre_hook(lambda *_: (states[None],)):
            ids = torch.zeros(1, 1, dtype=torch.long, device=states.device)
            logits: torch.Tensor = model(ids, use_cache=False).logits
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
    ) -> None:
        """Reset the adapter's factors.

        facts: of each the taught question first, then other wordings and corruptions.
        """
        reset(reader.model, generator(seed, "lora_A"))
        super().__init__(factors(reader.model), settings, len(facts), seed)
        self._reader, self._facts, self._settings = reader, facts, settings
        self._own = {kind: [turn for turn in own if turn.kind == kind] for kind in _KINDS}
        self._bfloat16 = next(reader.model.parameters()).dtype == torch.float32 and bfloat16_pays()
        self._untouched = UntouchedAnswers(reader)

    def advance(self) -> tuple[float, float]:
        """Make one step; return its mean cross-entropy of facts and KL on own texts, in nats."""
        draw = random.Random(derive(self.seed, "consolidation", self.step))
        varied = self._settings.varied
        facts = [choose_wording(self._facts[n], varied, draw) for n in self.fact_numbers()]
        own = [turn for kind in _KINDS for turn in self._drawn(kind, draw)]
        tokens = sum(len(turn.answer) for turn in own)
        self._untouched.read(own)
        cross_entropy = mean_kl = 0.0
        self.begin_step()
        with adapted(self._reader.model), self._reader.trained_prefix(), self._in_precision():
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

    @contextmanager
    def _in_precision(self) -> Iterator[None]:
        """In bfloat16 if it pays; on a CPU fused attention would take four times as long then."""
        device = next(iter(self.parameters.values())).device.type
        plain = self._bfloat16 and device == "cpu"
        with (
            plain_attention(self._reader.model) if plain else nullcontext(),
            torch.autocast(device, torch.bfloat16, enabled=self._bfloat16),
        ):
            yield

    def tensors(self) -> dict[str, torch.Tensor]:
        """The tensors of :class:`Steps`, and whether the steps are made in bfloat16."""
        return {**super().tensors(), _BFLOAT16: torch.tensor(self._bfloat16)}

    def resume(self, step: int, tensors: Mapping[str, torch.Tensor]) -> None:
        """Continue as :class:`Steps` does, in the precision in which the run began."""
        super().resume(step, tensors)
        self._bfloat16 = bool(tensors[_BFLOAT16])


class NeuronRehearsal(Steps):
    """A run that trains the downs of neurons on facts, a step at a time."""

    def __init__(
        self,
        reader: PromptReader,
        facts: Sequence[NamedFact],
        neurons: Neurons,
        settings: NeuronSettings,
        seed: int,
    ) -> None:
        """neurons: gates and ups, which stay as they are, and downs, of which a copy is trained."""
        downs = {
            name: tensor.clone().requires_grad_()
            for name, tensor in neurons.items()
            if name.endswith(".down")
        }
        super().__init__(downs, settings, len(facts), seed, (0.9, 0.99))
        self._reader, self._facts, self._varied = reader, facts, settings.varied
        self.neurons = {**neurons, **downs}

    def tensors(self) -> dict[str, torch.Tensor]:
        """The tensors of :class:`Steps`, and the gates and ups."""
        return {**self.neurons, **super().tensors()}

    def advance(self) -> float:
        """Make one step; return the mean cross-entropy of its facts' answers, in nats."""
        draw = random.Random(derive(self.seed, "neurons", self.step))
        chosen = [self._facts[place] for place in self.fact_numbers()]
        asked = [
            choose_wording((*fact.questions, *fact.corrupted), self._varied, draw)
            for fact in chosen
        ]
        readings = self._reader.read([text.tokens[: max(1, text.end)] for text in asked])
        before = [_until(reading, text.end) for reading, text in zip(readings, asked, strict=True)]
        behind = [[*text.tokens[text.end :], *self._reader.form.invocation] for text in asked]
        self.begin_step()
        with acting(self._reader.model, self.neurons):
            answers = [fact.answer for fact in chosen]
            loss = self._reader.answer_logits(before, answers, behind).losses().mean()
        loss.backward()
        self.end_step()
        return loss.item()


def _until(reading: Reading, end: int) -> Reading:
    """The reading of a prompt's first ``end`` tokens."""
    layers = tuple((keys[:, :end], values[:, :end]) for keys, values in reading.layers)
    return Reading(reading.tokens[:end], layers)
