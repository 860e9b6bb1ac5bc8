"""The divergences against torch's own, against the reference, and at their limits."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from holdfast.anchors.divergences import divergence
from reference import divergences as plain

KINDS = ("forward_kl", "reverse_kl", "jensen_shannon")
INF = float("inf")


def logits(seed: int = 0, tokens: int = 6, vocabulary: int = 30) -> tuple[Tensor, Tensor]:
    source = torch.Generator().manual_seed(seed)
    pair = 3 * torch.randn(2, tokens, vocabulary, generator=source, dtype=torch.float64)
    return pair[0], pair[1].clone().requires_grad_()


def by_torch(kind: str, teacher: Tensor, student: Tensor, temperature: float) -> Tensor:
    log_q = (teacher / temperature).log_softmax(-1)
    log_p = (student / temperature).log_softmax(-1)

    def kl(target: Tensor, value: Tensor) -> Tensor:
        return F.kl_div(value, target, reduction="none", log_target=True).sum(-1)

    if kind == "forward_kl":
        return temperature**2 * kl(log_q, log_p)
    if kind == "reverse_kl":
        return temperature**2 * kl(log_p, log_q)
    log_m = ((log_q.exp() + log_p.exp()) / 2).log()
    return temperature**2 * (kl(log_q, log_m) + kl(log_p, log_m)) / 2


def gradient(value: Tensor, student: Tensor) -> Tensor:
    (result,) = torch.autograd.grad(value.mean(), student)
    return result


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("temperature", [0.5, 1.0, 5.0])
def test_value_and_gradient_are_those_of_torch(kind: Any, temperature: float) -> None:
    teacher, student = logits()
    ours = divergence(kind, teacher, student, temperature)
    theirs = by_torch(kind, teacher, student, temperature)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(
        gradient(ours, student), gradient(theirs, student), rtol=1e-10, atol=1e-14
    )
    assert (ours > 0.05).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("vocabulary", [None, 1, 7, 30, 99])
def test_value_and_gradient_are_those_of_the_reference(kind: Any, vocabulary: int | None) -> None:
    teacher, student = logits(seed=1)
    ours = divergence(kind, teacher, student, 2.0, vocabulary).mean()
    pair = (teacher[None], student[None])
    if vocabulary is not None and vocabulary < 30:
        pair = plain.truncate(*pair, vocabulary)
    theirs = getattr(plain, kind)(*pair, torch.ones(1, 6, dtype=torch.bool), 2.0)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(
        gradient(ours, student), gradient(theirs, student), rtol=1e-10, atol=1e-14
    )


@pytest.mark.parametrize("kind", KINDS)
def test_zero_for_the_same_distribution(kind: Any) -> None:
    teacher, _ = logits()
    student = (teacher + 4.0).requires_grad_()  # logits are defined up to a constant
    value = divergence(kind, teacher, student, 2.0)
    assert value.abs().max() < 1e-14
    assert gradient(value, student).abs().max() < 1e-14


@pytest.mark.parametrize("kind", KINDS)
def test_the_scale_of_the_gradient_survives_the_temperature(kind: Any) -> None:
    """tau^2 times the divergence tends to the same quadratic form of the logits for every tau."""
    teacher, student = logits()
    warm, hot = (gradient(divergence(kind, teacher, student, t), student) for t in (1e4, 1e5))
    torch.testing.assert_close(warm, hot, rtol=1e-2, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_narrow_logits_are_widened_first(kind: Any) -> None:
    teacher, student = (part.detach().bfloat16() for part in logits())
    narrow, wide = (part.clone().requires_grad_() for part in (student, student.float()))
    ours = divergence(kind, teacher, narrow, 5.0)
    theirs = divergence(kind, teacher.float(), wide, 5.0)
    assert ours.dtype == torch.float32
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    expected = gradient(theirs, wide).bfloat16()
    torch.testing.assert_close(gradient(ours, narrow), expected, rtol=2**-7, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_what_both_exclude_does_not_exist(kind: Any) -> None:
    """Logits of -inf on both sides: the divergence, and its gradient, over the other tokens."""
    teacher, student = logits(vocabulary=8)
    wide = [torch.cat([x, torch.full((6, 2), -INF, dtype=x.dtype)], -1) for x in (teacher, student)]
    leaf = wide[1].detach().requires_grad_()
    ours, small = divergence(kind, wide[0], leaf, 2.0), divergence(kind, teacher, student, 2.0)
    torch.testing.assert_close(ours, small, rtol=1e-13, atol=0)
    whole = gradient(ours, leaf)
    torch.testing.assert_close(whole[:, :8], gradient(small, student), rtol=1e-12, atol=1e-15)
    assert not whole[:, 8:].any()


def test_what_one_excludes() -> None:
    """0 log 0 is 0; mass where the other has none is infinite, but never more than log 2 in JS."""
    none, both = torch.tensor([[0.0, -INF]]), torch.tensor([[0.0, 0.0]])
    assert divergence("forward_kl", none, both, 1.0).item() == pytest.approx(math.log(2))
    assert divergence("forward_kl", both, none, 1.0).item() == INF
    assert divergence("reverse_kl", both, none, 1.0).item() == pytest.approx(math.log(2))
    assert divergence("reverse_kl", none, both, 1.0).item() == INF
    other = torch.tensor([[-INF, 0.0]])
    assert divergence("jensen_shannon", none, other, 1.0).item() == pytest.approx(math.log(2))


@pytest.mark.parametrize("kind", KINDS)
def test_extreme_logits_stay_finite(kind: Any) -> None:
    teacher = torch.tensor([[1e4, -1e4, 0.0]])
    student = torch.tensor([[-1e4, 1e4, 0.0]], requires_grad=True)
    value = divergence(kind, teacher, student, 1.0)
    assert value.isfinite().all()
    assert gradient(value, student).isfinite().all()
