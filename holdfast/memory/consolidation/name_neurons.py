"""Learn facts into neurons that fire at the last token of the name that a fact is about.

At that token, in the MLPs of the lower layers, a model looks up what it knows about a named thing
(Meng et al. 2022, 2202.05262). So every name gets one neuron in each of these layers. Where it
fires is computed from what the MLPs read (:func:`holdfast.model.neurons.detectors`); what it adds
is trained to give the answers. No neuron fires in other text, so no loss term has to protect it.

A step minimizes the mean cross-entropy of some facts' answers. The untouched model reads the tokens
before the end of a name.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch

from holdfast.core.seeding import derive
from holdfast.memory.consolidation.names import NamedFact, NamedQuestion
from holdfast.memory.consolidation.steps import Steps, StepSettings, choose_wording
from holdfast.model.neurons import FIRES, Neurons, acting, detectors, mlp_inputs
from holdfast.model.reading import PromptReader, Reading

_BETAS = (0.9, 0.99)
_READ = 64  # texts at once
# How many tokens of ordinary weight these count as: the end of a name that ends like a taught one,
# a name's last word in other text, a token of text without a template.
RIVAL, LAST_WORD, _ALONE = 100.0, 10.0, 3.0
Report = Callable[[int, int], None]


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


def detectors_of_names(
    reader: PromptReader,
    mlps: Sequence[str],
    facts: Sequence[NamedFact],
    rivals: Sequence[tuple[NamedQuestion, float]],
    texts: Iterable[Sequence[int]],
    alone: Iterable[Sequence[int]],
    report: Report = lambda *_: None,
) -> dict[str, torch.Tensor]:
    """Make a neuron in each MLP for each name: gates and ups, and downs of zeros, [names, d].

    rivals: texts at whose ``end`` no neuron should fire, and how many tokens that one counts as;
    texts: token ids after the prefix, at which no neuron should fire; alone: the same without the
    prefix, each token of which counts as three. The prefix counts once for every text after it. Ups
    are scaled so that a down of ones adds as much as the residual stream holds. report: texts read.
    """
    asked = [(question, fact.name) for fact in facts for question in fact.questions]
    size = reader.model.config.get_text_config().hidden_size
    names = 1 + max(fact.name for fact in facts)
    moments = {mlp: torch.zeros(size, size, dtype=torch.float64) for mlp in mlps}
    sums = {mlp: torch.zeros(size, dtype=torch.float64) for mlp in mlps}
    name_sums = {mlp: torch.zeros(names, size, dtype=torch.float64) for mlp in mlps}
    name_counts = torch.zeros(names, 1, dtype=torch.float64)
    behind = [question.tokens for question, _ in [*asked, *rivals]] + list(map(tuple, texts))
    others = [reader.form.prefix, *map(tuple, alone)]
    squares: list[torch.Tensor] = []
    texts_read = itertools.count(1)

    def add(inputs: dict[str, torch.Tensor], times: float = 1.0) -> None:
        for mlp, read in inputs.items():
            wide = read.double()
            moments[mlp] += times * wide.t() @ wide
            sums[mlp] += times * wide.sum(0)

    def take(place: int, inputs: dict[str, torch.Tensor], residual: torch.Tensor) -> None:
        squares.append(residual.square().mean(1))
        add(inputs)
        rival = place - len(asked)
        if rival < 0:
            question, name = asked[place]
            name_counts[name] += 1
            for mlp, read in inputs.items():
                name_sums[mlp][name] += read[question.end]
        elif rival < len(rivals):
            question, times = rivals[rival]
            end = slice(question.end, question.end + 1)
            add({mlp: read[end] for mlp, read in inputs.items()}, times - 1)
        report(next(texts_read), len(behind) + len(others))

    def take_alone(place: int, inputs: dict[str, torch.Tensor], _: torch.Tensor) -> None:
        add(inputs, _ALONE if place else len(behind))
        report(next(texts_read), len(behind) + len(others))

    mlp_inputs(reader, mlps, behind, take, _READ)
    scale = torch.cat(squares).median().sqrt()
    mlp_inputs(reader, mlps, others, take_alone, _READ, alone=True)
    neurons = {}
    for mlp in mlps:
        gate, up = detectors(moments[mlp], sums[mlp], name_sums[mlp] / name_counts)
        neurons[f"{mlp}.gate"], neurons[f"{mlp}.up"] = gate.float(), (scale / FIRES * up).float()
        neurons[f"{mlp}.down"] = torch.zeros(names, size)
    return neurons


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
        super().__init__(downs, settings, len(facts), seed, _BETAS)
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
