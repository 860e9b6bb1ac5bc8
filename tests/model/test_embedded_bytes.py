"""The embedded backbone tells every byte from every other, and is the model that it was."""

from __future__ import annotations

import pytest
import torch

from holdfast.evaluation.text import bits_per_byte, everyday_passages, lengths
from holdfast.model.backbone import Backbone
from holdfast.model.load import load_backbone


@pytest.fixture(scope="module")
def embedded() -> Backbone:
    return load_backbone(Backbone.Config(name="embedded", precision="float32", device="cpu"))


def byte_tokens(backbone: Backbone) -> torch.Tensor:
    """The ids of the 256 tokens of one byte."""
    pieces = backbone.tokenizer.get_vocab()
    return torch.tensor(sorted(pieces[piece] for piece in pieces if len(piece) == 1))


def test_every_byte_is_told_apart(embedded: Backbone) -> None:
    """As an input and, the embedding being tied, as an output: no adapter could do it later."""
    tokens = byte_tokens(embedded)
    assert len(tokens) == 256
    rows = embedded.model.get_input_embeddings().weight[tokens]
    unit = rows / rows.norm(dim=1, keepdim=True)
    alike = unit @ unit.T - 2 * torch.eye(256)
    assert alike.max() < 0.95  # before, 0.9998
    between = torch.cdist(rows, rows) + 10 * torch.eye(256)
    assert between.min() > 1  # before, 0.09


def test_bytes_of_other_scripts_stay_improbable_in_english(embedded: Backbone) -> None:
    tokens = byte_tokens(embedded)
    others = tokens[embedded.model.get_input_embeddings().weight[tokens].norm(dim=1) > 4.8]
    assert len(others) > 100
    passages = [passage.text for passage in everyday_passages()]
    ids = torch.tensor([embedded.tokenize(passages[0])[:256]])
    with torch.no_grad():
        likelihoods = embedded.logits(embedded.hidden(ids))[0].log_softmax(dim=-1)
    assert likelihoods[:, others].logsumexp(dim=-1).mean() < -10
    assert bits_per_byte(lengths(embedded, passages)) == pytest.approx(1.7633, abs=2e-3)
