"""Fit a gate to a model: what finds names, what tells relations apart, and a decision.

Once a model. The library of relations gives questions about invented names; no fact and no
evaluation data is read. The untouched model's states at a question's tokens are taken at two
depths. A probe (:mod:`holdfast.memory.chat.naming`) finds the tokens of the name; the mean of the
others is projected so that wordings of one relation lie together (a contrastive loss, InfoNCE, van
den Oord et al. 2018). A logistic function of likeness and named words is then fitted to pairs of
questions, with a probe and projections that have not seen their relations, and its threshold set by
the pairs that must not be accepted.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import compress

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

from holdfast.core.config import sha256_of
from holdfast.core.errors import HoldfastError
from holdfast.core.seeding import derive, generator
from holdfast.memory.chat.library_questions import LibraryQuestion, library_questions, pairs_of
from holdfast.memory.chat.naming import NameProbe, Span, fit_probe
from holdfast.memory.chat.relations import relations
from holdfast.memory.chat.words import Names, agreement
from holdfast.model.cache import cache_directory, unwritable
from holdfast.model.chat import ChatForm
from holdfast.model.reading import PromptReader
from holdfast.model.tensors import read_tensors, write_tensors

_VERSION = 3  # of what follows; a new one fits anew
# Fractions of the layers; of 4, 9, 14 and 18 of 30 these two were best on the development set.
_DEPTHS = (0.3, 0.47)
_DIMENSIONS = 64  # of the projection, at each depth
_STEPS, _LR, _DECAY, _DROP, _TEMPERATURE = 300, 3e-3, 0.3, 0.3, 0.1
_PAIRS = 4000
_LEAST_ASKING = 1e-3  # a token's part in the mean, when it is certainly of a name
# Most pairs of the library that must not be accepted and are: another relation, another entity.
_RELATION_ACCEPTED, _ENTITY_ACCEPTED = 0.03, 0.01

Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True)
class QuestionLook:
    """What the gate compares of a question. names: what it names; vector: [d], what it asks."""

    names: Names
    vector: Vectors


@dataclass(frozen=True)
class GateTuning:
    """What is fitted.

    key: of the model, its template and the library; depths: numbers of the hidden states; probe: at
    the last of them; mean, scale: [depths, d]; projection: [depths, d, m]; weights: of likeness,
    covered, extra and 1; positive sums are accepted.
    """

    key: str
    depths: tuple[int, ...]
    probe: NameProbe
    mean: torch.Tensor
    scale: torch.Tensor
    projection: torch.Tensor
    weights: tuple[float, ...]

    def look(self, text: str, spans: Sequence[Span], states: torch.Tensor) -> QuestionLook:
        """What a question names and asks. spans: of its tokens; states: [depths, tokens, d]."""
        probabilities = self.probe.probabilities(text, spans, states[-1])
        names = self.probe.names(text, spans, probabilities)
        return QuestionLook(
            names, self.vectors(asking_states(states, probabilities)[None])[0].numpy()
        )

    def vectors(self, states: torch.Tensor) -> torch.Tensor:
        """States [n, depths, d] as unit vectors [n, depths * m]."""
        centred = (states - self.mean) / self.scale
        projected = torch.einsum("nkd,kdm->nkm", centred, self.projection)
        return F.normalize(F.normalize(projected, dim=2).flatten(1), dim=1)

    def score(self, likeness: float, covered: float, extra: float) -> float:
        """Above 0 two questions are one; features as of :func:`.words.agreement` and a cosine."""
        features = (likeness, covered, extra, 1.0)
        return sum(weight * value for weight, value in zip(self.weights, features, strict=True))


def asking_states(states: torch.Tensor, probabilities: torch.Tensor) -> torch.Tensor:
    """The mean state of the tokens that are of no name: [depths, d].

    states: [depths, tokens, d]; probabilities: [tokens], of belonging to a name.
    """
    weights = (1 - probabilities).clamp(min=_LEAST_ASKING)
    return torch.einsum("ktd,t->kd", states.float(), weights / weights.sum())


def prepared_tuning(
    reader: PromptReader,
    fingerprint: str,
    report: Callable[[int, int], None] = lambda *_: None,
) -> GateTuning:
    """The tuning for a model, from the cache, or fitted and put there.

    fingerprint: of the model's files; report(done, total): questions read. Raises HoldfastError
    when the cache cannot be written.
    """
    form = reader.form
    asked_in = [form.prefix, form.user_end, form.invocation]
    digest = sha256_of([_VERSION, [list(one.wordings) for one in relations()], asked_in])[:8]
    key = f"{fingerprint[:16]}-{digest}"
    path = cache_directory() / "gates" / f"{key}.safetensors"
    try:
        return _from_tensors(key, read_tensors(path)[0])
    except ValueError:  # missing or damaged: fit it
        tuning = fit(reader, key, report)
    try:
        write_tensors(path, _tensors(tuning))
    except HoldfastError as error:
        raise unwritable(path.parent, error.__cause__ or error) from error
    return tuning


def fit(
    reader: PromptReader, key: str = "", report: Callable[[int, int], None] = lambda *_: None
) -> GateTuning:
    """Fit a gate to the reader's model."""
    count = reader.model.config.get_text_config().num_hidden_layers
    depths = tuple(sorted({max(1, round(count * fraction)) for fraction in _DEPTHS}))
    draw = random.Random(derive(0, "gate"))
    asked = library_questions(draw)
    read = _Read.by(reader, asked, depths, report)
    # What has seen one half of the groups is judged on the other.
    features, verdicts, kinds = [], [], []
    for half in (0, 1):
        seen, unseen = read.of_half(1 - half), read.of_half(half)
        partial = _untuned(seen, depths, key)
        looks = [
            partial.look(one.text, spans, states)
            for one, spans, states in zip(unseen.asked, unseen.spans, unseen.states, strict=True)
        ]
        for one, other, what in pairs_of(unseen.asked, _PAIRS, draw):
            taught, second = looks[one], looks[other]
            covered, extra = agreement(taught.names, second.names)
            features.append((float(taught.vector @ second.vector), covered, extra))
            verdicts.append(what == "same")
            kinds.append(what)
    weights = _decision(np.array(features), np.array(verdicts), np.array(kinds))
    return replace(_untuned(read, depths, key), weights=weights)


@dataclass(frozen=True)
class _Read:
    """Questions of the library with what the untouched model holds at their tokens.

    spans: of their tokens; states: [depths, tokens, d] of each.
    """

    asked: list[LibraryQuestion]
    spans: list[list[Span]]
    states: list[torch.Tensor]

    @classmethod
    def by(
        cls,
        reader: PromptReader,
        asked: list[LibraryQuestion],
        depths: Sequence[int],
        report: Callable[[int, int], None],
    ) -> _Read:
        form: ChatForm = reader.form
        prompts = [form.question(one.text) for one in asked]
        states = reader.states(prompts, depths, report=report)
        spans = [form.spans(one.text) for one in asked]
        return cls(asked, spans, [one.cpu() for one in states])

    def of_half(self, half: int) -> _Read:
        """The questions of every other group of relations."""
        inside = [one.group % 2 == half for one in self.asked]
        return _Read(
            list(compress(self.asked, inside)),
            list(compress(self.spans, inside)),
            list(compress(self.states, inside)),
        )


def _untuned(read: _Read, depths: tuple[int, ...], key: str) -> GateTuning:
    """The probe and the projections that questions give, without a decision."""
    texts = [one.text for one in read.asked]
    last = [states[-1] for states in read.states]
    probe = fit_probe(texts, read.spans, last, [one.name for one in read.asked])
    asking = [
        asking_states(states, probe.probabilities(text, spans, states[-1]))
        for text, spans, states in zip(texts, read.spans, read.states, strict=True)
    ]
    labels = torch.tensor([one.relation for one in read.asked])
    mean, scale, projection = _project(torch.stack(asking), labels)
    return GateTuning(key, depths, probe, mean, scale, projection, (0.0,) * 4)


def _project(
    states: torch.Tensor, labels: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Fit the projection at each depth. states: [n, depths, d]; returns mean, scale, projection."""
    mean, scale = states.mean(0), states.std(0) + 1e-6
    groups = [torch.where(labels == label)[0] for label in labels.unique()]
    projections = [
        _contrastive((states[:, k] - mean[k]) / scale[k], groups, generator(0, "gate", k))
        for k in range(states.shape[1])
    ]
    return mean, scale, torch.stack(projections)


def _contrastive(
    inputs: torch.Tensor, groups: Sequence[torch.Tensor], drawn: torch.Generator
) -> torch.Tensor:
    """A projection [d, m] in which two wordings of a relation are each other's nearest."""
    width = inputs.shape[1]
    projection: torch.Tensor = torch.randn(width, _DIMENSIONS, generator=drawn) / width**0.5
    projection.requires_grad_(True)
    optimizer = torch.optim.AdamW([projection], lr=_LR, weight_decay=_DECAY)
    target = torch.arange(len(groups))
    for _ in range(_STEPS):
        pairs = torch.stack(
            [group[torch.randperm(len(group), generator=drawn)[:2]] for group in groups]
        )
        left, right = (
            F.normalize(_dropped(inputs[side], drawn) @ projection, dim=1) for side in pairs.T
        )
        logits = left @ right.T / _TEMPERATURE
        loss = (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return projection.detach()


def _dropped(inputs: torch.Tensor, drawn: torch.Generator) -> torch.Tensor:
    dropped = torch.rand(inputs.shape, generator=drawn) < _DROP
    return (inputs / (1 - _DROP)).masked_fill(dropped, 0.0)


def _decision(
    features: np.ndarray, same: np.ndarray, kinds: np.ndarray
) -> tuple[float, float, float, float]:
    """Logistic weights, with the threshold taken into the last so that 0 decides."""
    from scipy.optimize import minimize  # here, since every question would wait for its import

    inputs = np.c_[features, np.ones(len(features))]
    sign = np.where(same, 1.0, -1.0)

    def loss(weights: np.ndarray) -> float:
        return float(np.logaddexp(0, -sign * (inputs @ weights)).mean() + 1e-4 * weights @ weights)

    weights = minimize(loss, np.zeros(4), method="L-BFGS-B").x
    scores = inputs @ weights
    threshold = max(
        np.quantile(scores[kinds == "relation"], 1 - _RELATION_ACCEPTED),
        np.quantile(scores[kinds == "entity"], 1 - _ENTITY_ACCEPTED),
    )
    first, second, third, constant = (float(weight) for weight in weights)
    return first, second, third, constant - float(threshold)


def _tensors(tuning: GateTuning) -> dict[str, torch.Tensor]:
    return {
        "depths": torch.tensor(tuning.depths),
        "probe.mean": tuning.probe.mean,
        "probe.scale": tuning.probe.scale,
        "probe.weights": tuning.probe.weights,
        "mean": tuning.mean,
        "scale": tuning.scale,
        "projection": tuning.projection,
        "weights": torch.tensor(tuning.weights, dtype=torch.float64),
    }


def _from_tensors(key: str, tensors: dict[str, torch.Tensor]) -> GateTuning:
    return GateTuning(
        key,
        tuple(tensors["depths"].tolist()),
        NameProbe(*(tensors[f"probe.{name}"] for name in ("mean", "scale", "weights"))),
        tensors["mean"],
        tensors["scale"],
        tensors["projection"],
        tuple(tensors["weights"].tolist()),
    )
