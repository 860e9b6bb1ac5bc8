"""A gate's projection tells relations apart that it has not seen; it is fitted once a model."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.linalg
import torch

from holdfast.core.errors import HoldfastError
from holdfast.memory import gate
from holdfast.memory import gate_tuning as module
from holdfast.memory.gate import GateTuning, NameProbe
from holdfast.memory.gate_tuning import prepared_tuning
from holdfast.memory.library import ENTITY, other_wordings, relations
from holdfast.model.chat import chat_form
from holdfast.model.reading import PromptReader
from tests.model.chat_models import chat_llama, chat_tokenizer

WIDTH, RELATIONS, WORDINGS = 64, 240, 4
PROBE = NameProbe(*[torch.zeros(1)] * 3)


def made_up(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """States in which a few directions tell the relation and louder ones the wording."""
    drawn = torch.Generator().manual_seed(seed)
    basis = torch.linalg.qr(torch.randn(WIDTH, WIDTH, generator=drawn))[0]
    labels = torch.arange(RELATIONS).repeat_interleave(WORDINGS)
    relation = torch.randn(RELATIONS, 16, generator=drawn)[labels]
    noise = 2 * torch.randn(len(labels), WIDTH - 16, generator=drawn)
    states = torch.cat([relation, noise], 1) @ basis + 5 * torch.randn(WIDTH, generator=drawn)
    return states[:, None], labels


def fraction_found(vectors: torch.Tensor, labels: torch.Tensor) -> float:
    """The fraction of wordings whose likest other wording is of the same relation."""
    likeness = (vectors @ vectors.T).fill_diagonal_(-2)
    return (labels[likeness.argmax(1)] == labels).float().mean().item()


def test_the_projection_finds_relations_that_it_has_not_seen() -> None:
    """Better than the states themselves, centred and scaled; a random one does not."""
    states, labels = made_up()
    held_out = labels >= RELATIONS // 2
    fitted = GateTuning(
        "", (1,), PROBE, *module._discriminant(states[~held_out, 0], labels[~held_out]), ()
    )
    vectors = fitted.vectors(states[held_out])
    torch.testing.assert_close(vectors.norm(dim=1), torch.ones(len(vectors)))
    raw = torch.nn.functional.normalize(states[held_out, 0] - fitted.mean)
    drawn = torch.randn(fitted.projection.shape, generator=torch.Generator().manual_seed(1))
    unfitted = replace(fitted, projection=drawn)
    before = fraction_found(raw, labels[held_out])
    assert fraction_found(vectors, labels[held_out]) > before + 0.3
    assert fraction_found(unfitted.vectors(states[held_out]), labels[held_out]) < before + 0.1


def test_two_questions_are_compared_by_what_they_ask_of_the_library() -> None:
    """Vectors' products are Bhattacharyya coefficients of softmaxes over the relations."""
    drawn = torch.Generator().manual_seed(2)
    states, mean = (torch.randn(*shape, generator=drawn) for shape in ((5, 2, 8), (16,)))
    projection = torch.randn(16, 6, generator=drawn)
    centres = torch.nn.functional.normalize(torch.randn(7, 6, generator=drawn))
    tuning = GateTuning("", (1, 2), PROBE, mean, projection, centres, ())
    asks = []
    for row in states.flatten(1).double():
        direction = (row - mean) @ projection.double()
        each = torch.exp(centres.double() @ (direction / direction.norm()) / gate._TEMPERATURE)
        asks.append(each / each.sum())
    vectors = tuning.vectors(states)
    for first in range(5):
        for second in range(5):
            wanted = (asks[first] * asks[second]).sqrt().sum().item()
            assert float(vectors[first] @ vectors[second]) == pytest.approx(
                wanted, rel=1e-4, abs=1e-6
            )


def test_the_discriminant_is_fishers() -> None:
    """Directions of a generalised eigenproblem: wordings vary by 1 in each, and independently."""
    states, labels = made_up(3)
    states = states[:, 0]
    mean, projection, centres = module._discriminant(states, labels)
    scale = states.std(0) + 1e-6
    inputs = ((states - mean) / scale).double().numpy()
    means = np.stack([inputs[labels == label].mean(0) for label in range(RELATIONS)])
    within = inputs - means[labels]
    covariance = within.T @ within / (len(inputs) - RELATIONS)
    part = module._SHRINKAGE
    covariance = (1 - part) * covariance + part * np.diag(covariance).mean() * np.eye(WIDTH)
    _, vectors = scipy.linalg.eigh(means.T @ means, covariance)
    fitted = (projection * scale[:, None]).double().numpy()
    assert fitted.shape == (WIDTH, min(WIDTH, module._DIMENSIONS))
    wanted = np.abs(vectors[:, ::-1].T @ covariance @ fitted)
    np.testing.assert_allclose(wanted, np.eye(WIDTH), atol=1e-3)
    directions = torch.nn.functional.normalize((states - mean) @ projection)
    centroids = torch.stack([directions[labels == label].mean(0) for label in range(RELATIONS)])
    torch.testing.assert_close(centres, torch.nn.functional.normalize(centroids))


def test_the_threshold_accepts_no_more_than_it_may() -> None:
    """Of pairs that must not be; the weights say which of the features count."""
    drawn = np.random.default_rng(0)
    kinds = np.array(["same", "relation", "entity"] * 1000)
    same = kinds == "same"
    likeness = np.where(kinds == "relation", 0.2, 0.8) + 0.25 * drawn.normal(size=3000)
    covered = np.where(kinds == "entity", 0.3, 1.0) + 0.2 * drawn.normal(size=3000)
    extra = drawn.random(3000)
    features = np.c_[likeness, covered, extra]
    weights = module._decision(features, kinds)
    accepted = np.c_[features, np.ones(3000)] @ np.array(weights) > 0
    assert accepted[kinds == "relation"].mean() <= module._RELATION_ACCEPTED
    assert accepted[kinds == "entity"].mean() <= module._ENTITY_ACCEPTED
    assert accepted[same].mean() > 0.4
    assert weights[0] > 1 and weights[1] > 1 and abs(weights[2]) < 0.5
    tuning = GateTuning("", (1,), PROBE, *[torch.zeros(1)] * 3, weights)
    assert tuning.score(*features[0]) == pytest.approx(float(np.r_[features[0], 1] @ weights))


def test_what_is_asked_is_the_mean_beside_the_name() -> None:
    states = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(0))
    asking = module.asking_states(states, torch.tensor([0.0, 1.0, 0.5, 0.0]))
    expected = (states[:, 0] + 0.001 * states[:, 1] + 0.5 * states[:, 2] + states[:, 3]) / 2.501
    torch.testing.assert_close(asking, expected)


@pytest.fixture
def reader() -> PromptReader:
    return PromptReader(chat_llama(), chat_form(chat_tokenizer()))


@pytest.mark.usefixtures("quick_gate")
def test_a_tuning_is_kept_and_made_anew_where_it_is_damaged(
    reader: PromptReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path))
    fitted, real = [], module.fit

    def fit(*given: object) -> GateTuning:
        fitted.append(given)
        return real(*given)

    monkeypatch.setattr(module, "fit", fit)
    name = hashlib.sha256(b"model").hexdigest()
    first = prepared_tuning(reader, name)
    (path,) = (tmp_path / "gates").iterdir()
    content = path.read_bytes()
    cached = prepared_tuning(reader, name)
    assert same(cached, first) and len(fitted) == 1
    # Products of what lies otherwise in memory may round otherwise, and a lesson keeps some.
    lies = [
        [(tensor.stride(), tensor.data_ptr() % 64) for tensor in module._tensors(tuning).values()]
        for tuning in (first, cached)
    ]
    assert lies[0] == lies[1]
    flipped = content[:-9] + bytes([content[-9] ^ 1]) + content[-8:]
    path.write_bytes(flipped)
    assert same(prepared_tuning(reader, name), first) and len(fitted) == 2
    assert path.read_bytes() == content
    # The same weights under another template are asked otherwise.
    base = PromptReader(reader.model, chat_form(chat_tokenizer(None)))
    assert not same(prepared_tuning(base, name), first) and len(fitted) == 3
    assert len(list(path.parent.iterdir())) == 2


@pytest.mark.usefixtures("quick_gate")
def test_a_tuning_that_comes_along_is_not_fitted(
    reader: PromptReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "SHIPPED", tmp_path / "shipped")
    key = module.tuning_key(reader.form, "0" * 64)
    tuning = module.fit(reader, key)
    (tmp_path / "shipped").mkdir()
    module.write_tuning(tmp_path / "shipped", tuning)
    monkeypatch.setattr(module, "fit", None)
    assert same(prepared_tuning(reader, "0" * 64), tuning)
    assert not (tmp_path / "cache" / "gates").exists()


@pytest.mark.usefixtures("quick_gate")
def test_a_cache_that_cannot_be_written_is_one_line(
    reader: PromptReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path / "file"))
    with pytest.raises(HoldfastError, match=r"gates: cannot be written \(Not a .* HOLDFAST_CACHE"):
        prepared_tuning(reader, "0" * 64)


def same(first: GateTuning, second: GateTuning) -> bool:
    tensors = zip(module._tensors(first).items(), module._tensors(second).items(), strict=True)
    return all(a == b and torch.equal(x, y) for (a, x), (b, y) in tensors)


def test_a_question_of_the_library_is_reworded_with_its_entity() -> None:
    relation = relations()[0]
    for wording in relation.wordings:
        others = other_wordings(wording.replace(ENTITY, "Straße Ünal").upper().rstrip("?"))
        assert len(others) == 7 and all("STRASSE ÜNAL" in text for text in others)
        asked = wording.replace(ENTITY, "Straße Ünal")
        others = other_wordings(asked)
        assert len(others) == 7 and all("Straße Ünal" in text for text in others)
        assert asked.casefold() not in [text.casefold() for text in others]
    assert other_wordings("Zebra") == [] and other_wordings(relation.wordings[0][:-5]) == []
