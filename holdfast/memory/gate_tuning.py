"""Fit a gate to a model, once per model.

The data are questions of the library of relations about invented names; no fact and no evaluation
data is read. The untouched model's hidden states at a question's tokens are taken at two depths.

A logistic probe finds the tokens of the name. Fisher's linear discriminant projects the mean state
of the other tokens so that the wordings of one relation lie together; a softmax over the relations'
centres then gives the probability of each. Two questions are compared by their names and by the
Bhattacharyya coefficient of these distributions, to which relations that neither asks add nothing.
A logistic function of both is fitted to pairs of questions, with a probe and a projection that have
not seen their relations. The pairs that must not be accepted set its threshold.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from holdfast.core.config import sha256_of
from holdfast.core.errors import HoldfastError
from holdfast.core.reporting import CountReport, silent
from holdfast.core.seeding import derive, generator
from holdfast.memory.gate import (
    GateTuning,
    NameProbe,
    Span,
    asking_states,
    directions_of,
    hints_of,
)
from holdfast.memory.library import LibraryQuestion, library_questions, pairs_of, relations
from holdfast.memory.words import agreement
from holdfast.model.chat import ChatForm
from holdfast.model.reading import PromptReader
from holdfast.model.sources.cache import cache_directory, unwritable
from holdfast.model.tensors import read_tensors, write_tensors

_VERSION = 6  # of the fit; after a change every model's gate is fitted anew
# Fractions of the layers. Of layers 4, 9, 14, 18 of 30 these two were best on the development set.
_DEPTHS = (0.3, 0.47)
# Of the projection; of the covariance. Chosen on the development set, where half or twice either of
# them, or the softmax's temperature, leaves the AUROC between .963 and .972.
_DIMENSIONS, _SHRINKAGE = 64, 0.3
_STEPS, _LR, _DECAY, _BATCH = 300, 3e-3, 0.3, 2048  # of the probe
_PAIRS = 4000
_FOLDS = 3  # of the relations; each is scored by a fit to the others
# Largest fractions of the library's pairs with another relation, or another entity, that the gate
# accepts before adapters are asked. On the development set 3% and none are accepted in the end.
_RELATION_ACCEPTED, _ENTITY_ACCEPTED = 0.05, 0.02

# Of the default model, by scripts/ship_gate.py.
SHIPPED = Path(__file__).parent / "gates"


def prepared_tuning(
    reader: PromptReader,
    fingerprint: str,
    report: CountReport = silent,
) -> GateTuning:
    """The tuning for a model, from the cache or the package, else fitted and put into the cache.

    fingerprint: of the model's files; report(done, total): questions read. Raises HoldfastError if
    the cache cannot be written.
    """
    key = tuning_key(reader.form, fingerprint)
    cached = cache_directory() / "gates"
    for folder in (cached, SHIPPED):
        with contextlib.suppress(ValueError):  # missing or damaged
            return _from_tensors(key, read_tensors(folder / f"{key}.safetensors")[0])
    tuning = fit(reader, key, report)
    try:
        write_tuning(cached, tuning)
    except HoldfastError as error:
        raise unwritable(cached, error.__cause__ or error) from error
    return tuning


def tuning_key(form: ChatForm, fingerprint: str) -> str:
    """The key of the tuning for a model, its template and the library of relations."""
    wordings = [list(relation.wordings) for relation in relations()]
    template = [form.prefix, form.user_end, form.invocation]
    digest = sha256_of([_VERSION, wordings, template])
    return f"{fingerprint[:16]}-{digest[:8]}"


def write_tuning(folder: Path, tuning: GateTuning) -> None:
    """Write a tuning under its key."""
    write_tensors(folder / f"{tuning.key}.safetensors", _tensors(tuning), parents=True)


def fit(reader: PromptReader, key: str = "", report: CountReport = silent) -> GateTuning:
    """Fit a gate to the reader's model."""
    count = reader.model.config.get_text_config().num_hidden_layers
    depths = tuple(sorted({max(1, round(count * fraction)) for fraction in _DEPTHS}))
    draw = random.Random(derive(0, "gate"))
    asked = library_questions(draw)
    form: ChatForm = reader.form
    prompts = [form.question(question.text) for question in asked]
    read = [
        _ReadQuestion(question, form.spans(question.text), states.cpu())
        for question, states in zip(
            asked, reader.states(prompts, depths, report=report), strict=True
        )
    ]
    # The pairs of each fold are scored by a probe and a projection fitted to the other folds.
    features, differences = [], []
    for fold in range(_FOLDS):
        unseen = [row for row in read if row.question.group % _FOLDS == fold]
        seen = [row for row in read if row.question.group % _FOLDS != fold]
        undecided = _undecided(seen, depths, key)
        looks = [undecided.look(row.question.text, row.spans, row.states) for row in unseen]
        questions = [row.question for row in unseen]
        for first, second, difference in pairs_of(questions, _PAIRS, draw):
            taught, other = looks[first], looks[second]
            covered, extra = agreement(taught.names, other.names)
            features.append((float(taught.vector @ other.vector), covered, extra))
            differences.append(difference)
    weights = _decision(np.array(features), np.array(differences))
    return replace(_undecided(read, depths, key), weights=weights)


@dataclass(frozen=True)
class _ReadQuestion:
    """A question with its tokens' spans and the untouched model's states [depths, tokens, d]."""

    question: LibraryQuestion
    spans: list[Span]
    states: torch.Tensor


def _undecided(read: Sequence[_ReadQuestion], depths: tuple[int, ...], key: str) -> GateTuning:
    """A tuning with probe and projection fitted to questions, without decision weights."""
    probe = fit_probe(
        [row.question.text for row in read],
        [row.spans for row in read],
        [row.states[-1] for row in read],
        [row.question.name for row in read],
    )
    asking = []
    for row in read:
        probabilities = probe.probabilities(row.question.text, row.spans, row.states[-1])
        asking.append(asking_states(row.states, probabilities))
    labels = torch.tensor([row.question.relation for row in read])
    fitted = _discriminant(torch.stack(asking).flatten(1), labels)
    return GateTuning(key, depths, probe, *fitted, (0.0,) * 4)


def _discriminant(
    states: torch.Tensor, labels: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Fit Fisher's linear discriminant of relations.

    states: [n, d]; labels: of relations, [n]. Returns mean [d], projection [d, m] and centres
    [relations, m]. The projection has the directions in which the relations' means differ most,
    scaled so that the wordings of one relation have variance 1. Their covariance is shrunk towards
    the mean variance, since it has many entries for so few questions (Friedman 1989).
    """
    relations_of, rows = labels.unique(return_inverse=True)
    mean, scale = states.mean(0), states.std(0) + 1e-6
    inputs = ((states - mean) / scale).double()
    counts = torch.bincount(rows).double()
    means = torch.zeros(len(relations_of), inputs.shape[1], dtype=torch.float64)
    means = means.index_add(0, rows, inputs) / counts[:, None]
    within = inputs - means[rows]
    covariance = within.T @ within / max(1, len(inputs) - len(means))
    even = covariance.diagonal().mean() * torch.eye(len(covariance), dtype=torch.float64)
    values, vectors = torch.linalg.eigh((1 - _SHRINKAGE) * covariance + _SHRINKAGE * even)
    whitening = vectors / values.sqrt()
    between = torch.linalg.svd(means @ whitening, full_matrices=False).Vh[:_DIMENSIONS]
    projection = (whitening @ between.T / scale.double()[:, None]).float()
    directions = directions_of(states - mean, projection)
    centres = torch.zeros(len(means), projection.shape[1]).index_add(0, rows, directions)
    return mean, projection, F.normalize(centres, dim=1)


def _decision(features: np.ndarray, differences: np.ndarray) -> tuple[float, float, float, float]:
    """Fit the weights of the decision; the last includes the threshold, so that 0 decides.

    features: [pairs, 3]; differences: [pairs], as of :func:`.library.pairs_of`.
    """
    from scipy.optimize import minimize  # imported here, so that asking need not wait for it

    inputs = np.c_[features, np.ones(len(features))]
    sign = np.where(differences == "same", 1.0, -1.0)

    def loss(weights: np.ndarray) -> float:
        return float(np.logaddexp(0, -sign * (inputs @ weights)).mean() + 1e-4 * weights @ weights)

    weights = minimize(loss, np.zeros(4), method="L-BFGS-B").x
    scores = inputs @ weights
    threshold = max(
        np.quantile(scores[differences == "relation"], 1 - _RELATION_ACCEPTED),
        np.quantile(scores[differences == "entity"], 1 - _ENTITY_ACCEPTED),
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
        "projection": tuning.projection,
        "centres": tuning.centres,
        "weights": torch.tensor(tuning.weights, dtype=torch.float64),
    }


def _from_tensors(key: str, tensors: dict[str, torch.Tensor]) -> GateTuning:
    return GateTuning(
        key,
        tuple(tensors["depths"].tolist()),
        NameProbe(*(tensors[f"probe.{name}"] for name in ("mean", "scale", "weights"))),
        tensors["mean"],
        tensors["projection"],
        tensors["centres"],
        tuple(tensors["weights"].tolist()),
    )


def fit_probe(
    texts: Sequence[str],
    spans: Sequence[Sequence[Span]],
    states: Sequence[torch.Tensor],
    names: Sequence[Span],
) -> NameProbe:
    """Fit a probe with AdamW. names: where each text's name lies; the rest as in ``NameProbe``."""
    inputs = torch.cat([tensor.float() for tensor in states])
    mean, scale = inputs.mean(0), inputs.std(0) + 1e-6
    hints = torch.cat([hints_of(text, parts) for text, parts in zip(texts, spans, strict=True)])
    inputs = torch.cat([(inputs - mean) / scale, hints], 1)
    target = torch.tensor([
        float(begin < name[1] and end > name[0] and end > begin)
        for parts, name in zip(spans, names, strict=True)
        for begin, end in parts
    ])  # fmt: skip
    weights = torch.zeros(inputs.shape[1] + 1, requires_grad=True)
    optimizer = torch.optim.AdamW([weights], lr=_LR, weight_decay=_DECAY)
    drawn = generator(0, "names")
    for _ in range(_STEPS):
        rows = torch.randint(len(inputs), (_BATCH,), generator=drawn)
        logits = inputs[rows] @ weights[:-1] + weights[-1]
        loss = F.binary_cross_entropy_with_logits(logits, target[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return NameProbe(mean, scale, weights.detach())
