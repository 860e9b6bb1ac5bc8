"""Fit a gate to a model: a projection that tells relations apart, and the weights of a decision.

Once a model. The library of relations gives questions about invented names; no fact and no
evaluation data is read. The untouched model's state at the end of a prompt, taken at two depths, is
projected so that wordings of one relation lie together (a contrastive loss, InfoNCE, van den Oord
et al. 2018). A logistic function of likeness and named words is then fitted to pairs of questions,
with projections that have not seen their relations, and its threshold set by the pairs that must
not be accepted.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from holdfast.core.config import sha256_of
from holdfast.core.errors import HoldfastError
from holdfast.core.seeding import derive, generator
from holdfast.memory.chat.invented import invented_name
from holdfast.memory.chat.relations import ENTITY, Relation, relations
from holdfast.memory.chat.words import Naming, agreement
from holdfast.model.cache import cache_directory, unwritable
from holdfast.model.reading import PromptReader
from holdfast.model.tensors import read_tensors, write_tensors

_VERSION = 2  # of what follows; a new one fits anew
_DEPTHS = (0.47, 0.6)  # fractions of the layers; the best of 12 to 24 of 30 on the development set
_WORDINGS = 4  # of a relation, of its eight
_DIMENSIONS = 64  # of the projection, at each depth
_STEPS, _LR, _DECAY, _DROP, _TEMPERATURE = 300, 3e-3, 0.3, 0.3, 0.1
_PAIRS = 4000
# Most pairs of the library that must not be accepted and are: another relation, another entity.
_RELATION_ACCEPTED, _ENTITY_ACCEPTED = 0.03, 0.01


@dataclass(frozen=True)
class GateTuning:
    """What is fitted.

    depths: numbers of the hidden states; mean, scale [depths, d]; projection [depths, d, m];
    weights: of likeness, covered, extra and 1; positive sums are accepted.
    """

    depths: tuple[int, ...]
    mean: torch.Tensor
    scale: torch.Tensor
    projection: torch.Tensor
    weights: tuple[float, ...]

    @property
    def width(self) -> int:
        """The length of a vector."""
        return self.projection.shape[0] * self.projection.shape[2]

    def vectors(self, states: torch.Tensor) -> torch.Tensor:
        """States [n, depths, d] as unit vectors [n, depths * m]."""
        centred = (states - self.mean) / self.scale
        projected = torch.einsum("nkd,kdm->nkm", centred, self.projection)
        return F.normalize(F.normalize(projected, dim=2).flatten(1), dim=1)

    def score(self, likeness: float, covered: float, extra: float) -> float:
        """Above 0 two questions are one; features as of :func:`.words.agreement` and a cosine."""
        features = (likeness, covered, extra, 1.0)
        return sum(weight * value for weight, value in zip(self.weights, features, strict=True))


def prepared_tuning(
    reader: PromptReader,
    naming: Naming,
    fingerprint: str,
    report: Callable[[int, int], None] = lambda *_: None,
) -> GateTuning:
    """The tuning for a model, from the cache, or fitted and put there.

    fingerprint: of the model's files; report(done, total): questions read. Raises HoldfastError
    when the cache cannot be written.
    """
    form = reader.form
    asked_in = [form.prefix, form.user_end, form.invocation]
    key = sha256_of([_VERSION, [list(one.wordings) for one in relations()], asked_in])[:8]
    path = cache_directory() / "gates" / f"{fingerprint[:16]}-{key}.safetensors"
    try:
        return _from_tensors(read_tensors(path)[0])
    except ValueError:  # missing or damaged: fit it
        tuning = fit(reader, naming, report)
    try:
        write_tensors(path, _tensors(tuning))
    except HoldfastError as error:
        raise unwritable(path.parent, error.__cause__ or error) from error
    return tuning


def fit(
    reader: PromptReader, naming: Naming, report: Callable[[int, int], None] = lambda *_: None
) -> GateTuning:
    """Fit a gate to the reader's model."""
    count = reader.model.config.get_text_config().num_hidden_layers
    depths = tuple(sorted({max(1, round(count * fraction)) for fraction in _DEPTHS}))
    draw = random.Random(derive(0, "gate"))
    asked = [_Asked(number, place, relation) for number, relation in enumerate(relations())
             for place in draw.sample(range(len(relation.wordings)), _WORDINGS)]  # fmt: skip
    texts = [one.text(invented_name(draw, one.relation.kind)) for one in asked]
    prompts = [reader.form.question(text) for text in texts]
    states = reader.states(prompts, depths, report=report)
    labels = torch.tensor([one.number for one in asked])
    # Projections that have seen one half of the relations are judged on the other.
    halves = [labels % 2 == half for half in (0, 1)]
    features, verdicts, kinds = [], [], []
    for half in (0, 1):
        partial = _project(states[halves[1 - half]], labels[halves[1 - half]], depths)
        seen = [one for one, inside in zip(asked, halves[half].tolist(), strict=True) if inside]
        pairs = _pairs(seen, partial.vectors(states[halves[half]]), naming, draw)
        features += [pair[0] for pair in pairs]
        verdicts += [pair[1] for pair in pairs]
        kinds += [pair[2] for pair in pairs]
    weights = _decision(np.array(features), np.array(verdicts), np.array(kinds))
    whole = _project(states, labels, depths)
    return GateTuning(depths, whole.mean, whole.scale, whole.projection, weights)


@dataclass(frozen=True)
class _Asked:
    """A wording of a relation. number: the relation's; place: the wording's."""

    number: int
    place: int
    relation: Relation

    def text(self, name: str) -> str:
        return self.relation.wordings[self.place].replace(ENTITY, name)


def _project(states: torch.Tensor, labels: torch.Tensor, depths: Sequence[int]) -> GateTuning:
    """Fit the projection at each depth."""
    mean, scale = states.mean(0), states.std(0) + 1e-6
    groups = [torch.where(labels == label)[0] for label in labels.unique()]
    projections = [
        _contrastive((states[:, k] - mean[k]) / scale[k], groups, generator(0, "gate", k))
        for k in range(len(depths))
    ]
    return GateTuning(tuple(depths), mean, scale, torch.stack(projections), (0.0,) * 4)


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


_Pair = tuple[tuple[float, float, float], bool, str]  # features, whether one question, what differs


def _pairs(
    asked: Sequence[_Asked], vectors: torch.Tensor, naming: Naming, draw: random.Random
) -> list[_Pair]:
    """Pairs of questions: the same, another relation of the entity, another entity."""
    by_relation: dict[int, list[int]] = {}
    by_kind: dict[str, list[int]] = {}
    for row, one in enumerate(asked):
        by_relation.setdefault(one.number, []).append(row)
        by_kind.setdefault(one.relation.kind, []).append(row)
    pairs: list[_Pair] = []
    for _ in range(_PAIRS):
        row = draw.randrange(len(asked))
        one, what = asked[row], draw.choice(("same", "relation", "entity"))
        if what == "relation":
            others = [p for p in by_kind[one.relation.kind] if asked[p].number != one.number]
        else:
            others = [p for p in by_relation[one.number] if p != row]
        other = draw.choice(others)
        name = invented_name(draw, one.relation.kind)
        second = _related(draw, name, one.relation.kind) if what == "entity" else name
        text = asked[other].text(_hurried(draw, second))
        covered, extra = agreement(naming(one.text(name)), naming(text))
        likeness = float(vectors[row] @ vectors[other])
        pairs.append(((likeness, covered, extra), what == "same", what))
    return pairs


def _related(draw: random.Random, name: str, kind: str) -> str:
    """Another name, of which one part may be the same."""
    other = invented_name(draw, kind)
    parts, others = name.split(), other.split()
    if len(parts) == len(others) > 1 and draw.random() < 0.5:
        place = draw.randrange(len(parts))
        others[place] = parts[place]
        other = " ".join(others)
    return other if other != name else f"{other} Senior"


def _hurried(draw: random.Random, name: str) -> str:
    """The name as it is, or as a hurried person types it: small letters, two of them swapped."""
    if draw.random() < 0.7:
        return name
    name = name.lower()
    if len(name) > 6 and draw.random() < 0.3:
        place = draw.randrange(1, len(name) - 2)
        name = name[:place] + name[place + 1] + name[place] + name[place + 2 :]
    return name


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
        "mean": tuning.mean,
        "scale": tuning.scale,
        "projection": tuning.projection,
        "weights": torch.tensor(tuning.weights, dtype=torch.float64),
    }


def _from_tensors(tensors: dict[str, torch.Tensor]) -> GateTuning:
    return GateTuning(
        tuple(tensors["depths"].tolist()),
        tensors["mean"],
        tensors["scale"],
        tensors["projection"],
        tuple(tensors["weights"].tolist()),
    )
