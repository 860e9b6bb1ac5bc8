"""Losses over logits that are never all in memory: the same numbers in chunks."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from holdfast.anchors.divergences import divergence
from holdfast.model.backbone import Backbone
from holdfast.model.projection import Projection, TokenLogits, token_cross_entropy
from tests.tiny import exact_backbone

N, WIDTH, VOCABULARY = 11, 16, 257


def soft(tokens: TokenLogits) -> Tensor:
    return divergence("forward_kl", tokens.teacher, tokens.student, 2.0)


def truncated(tokens: TokenLogits) -> Tensor:
    return divergence("jensen_shannon", tokens.teacher, tokens.student, 5.0, 20)


LOSSES: list[Callable[[TokenLogits], Tensor]] = [token_cross_entropy, soft, truncated]


@pytest.fixture(scope="module")
def backbone() -> Backbone:
    return exact_backbone()


def drawn(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    source = torch.Generator().manual_seed(0)
    hidden = torch.randn(N, WIDTH, generator=source, dtype=torch.float64).to(dtype)
    teacher = torch.randn(N, WIDTH, generator=source, dtype=torch.float64).to(dtype)
    return hidden, teacher, torch.randint(VOCABULARY, (N,), generator=source)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("tokens_at_once", [1, 10])
def test_chunks_change_nothing(backbone, loss, tokens_at_once) -> None:
    hidden, teacher, targets = drawn()
    results = []
    for size in (10**9, tokens_at_once * VOCABULARY):
        leaf = hidden.clone().requires_grad_()
        mean = Projection(backbone, leaf, teacher, targets, size).mean(loss)
        (3.0 * mean).backward()
        results.append((mean.detach(), leaf.grad))
    whole = loss(TokenLogits(backbone, hidden, teacher, targets)).mean()
    torch.testing.assert_close(results[0][0], whole, rtol=1e-13, atol=0)
    torch.testing.assert_close(results[1], results[0], rtol=1e-12, atol=1e-15)
    assert results[0][1] is not None
    assert results[0][1].abs().max() > 1e-3


def test_the_gradient_may_be_taken_twice(backbone: Backbone) -> None:
    """Synaptic Intelligence backpropagates its part of the objective first."""
    hidden, teacher, targets = drawn()
    leaf = hidden.requires_grad_()
    mean = Projection(backbone, leaf, teacher, targets, 3 * VOCABULARY).mean(soft)
    (once,) = torch.autograd.grad(mean, leaf, retain_graph=True)
    (again,) = torch.autograd.grad(mean, leaf)
    assert torch.equal(once, again)


def test_losses_of_one_minibatch_share_its_logits(backbone, monkeypatch) -> None:
    calls: list[int] = []
    head = Backbone.logits

    def counted(self: Backbone, hidden: Tensor) -> Tensor:
        calls.append(len(hidden))
        return head(self, hidden)

    monkeypatch.setattr(Backbone, "logits", counted)
    hidden, teacher, targets = drawn()
    projection = Projection(backbone, hidden.requires_grad_(), teacher, targets)
    for loss in LOSSES:
        projection.mean(loss)
    assert calls == [N, N]  # the student's once, the teacher's once
    calls.clear()
    Projection(backbone, hidden, None, targets).mean(token_cross_entropy)
    assert calls == [N]  # no teacher, no logits of one
    calls.clear()
    Projection(backbone, hidden, teacher, targets, 4 * VOCABULARY).mean(soft)
    assert calls == [4, 4, 4, 4, 3, 3]  # never more than a chunk


def test_half_precision_takes_its_softmax_in_float32(backbone: Backbone) -> None:
    half = exact_backbone()
    half.model.bfloat16()
    hidden, teacher, targets = drawn(torch.bfloat16)
    expected = F.cross_entropy(half.logits(hidden).float(), targets)
    for size in (10**9, 3 * VOCABULARY):
        mean = Projection(half, hidden, teacher, targets, size).mean(token_cross_entropy)
        assert mean.dtype == torch.float32
        torch.testing.assert_close(mean, expected, rtol=1e-6, atol=0)
