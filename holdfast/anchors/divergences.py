"""How far a student's next-token distribution is from its teacher's, token by token."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

Divergence = Literal["forward_kl", "reverse_kl", "jensen_shannon"]


def divergence(
    kind: Divergence,
    teacher: Tensor,
    student: Tensor,
    temperature: float,
    vocabulary: int | None = None,
) -> Tensor:
    """The divergence at each token, times temperature squared: [n].

    teacher, student: logits [n, vocabulary]; temperature: tau > 0. ``vocabulary`` keeps only the
    teacher's so many likeliest tokens, both distributions renormalised over them.
    Source: eq. app-replay-loss, eq. app-function-loss (forward KL over the full vocabulary).
    """
    if vocabulary is not None and vocabulary < teacher.shape[-1]:
        kept = teacher.topk(vocabulary, dim=-1).indices
        teacher, student = teacher.gather(-1, kept), student.gather(-1, kept)
    if kind == "forward_kl":
        forward: Tensor = _ForwardKL.apply(teacher, student, temperature)  # type: ignore[no-untyped-call]
        return forward
    log_q = F.log_softmax(teacher / temperature, dim=-1)
    log_p = F.log_softmax(student / temperature, dim=-1)
    if kind == "reverse_kl":
        value = _kl(log_p, log_q)
    else:
        # Where both are impossible the sum has no gradient; any finite value does, it counts as 0.
        neither = (log_q == -torch.inf) & (log_p == -torch.inf)
        middle = torch.logaddexp(log_q.masked_fill(neither, 0.0), log_p.masked_fill(neither, 0.0))
        middle = middle - math.log(2.0)
        value = 0.5 * (_kl(log_q, middle) + _kl(log_p, middle))
    return value * temperature**2


class _ForwardKL(torch.autograd.Function):
    """``tau^2 sum q (log q - log p)`` and its gradient ``tau (p - q)``, in few passes.

    These are the largest tensors of a step: [n, vocabulary], several per token loss.
    """

    @staticmethod
    def forward(ctx: Any, teacher: Tensor, student: Tensor, temperature: float) -> Tensor:
        log_q = F.log_softmax(teacher / temperature, dim=-1)
        log_p = F.log_softmax(student / temperature, dim=-1)
        q = log_q.exp()
        value = _without_zeros(log_q.sub_(log_p).mul_(q), q).sum(dim=-1)
        ctx.save_for_backward(log_p.exp_().sub_(q))
        ctx.temperature = temperature
        return value * temperature**2

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[None, Tensor, None]:
        (difference,) = ctx.saved_tensors
        return None, difference * (upstream[0][:, None] * ctx.temperature), None


def _without_zeros(terms: Tensor, q: Tensor) -> Tensor:
    """0 log 0 counts as 0.  It is NaN, so where nobody has to wait for the answer, one looks."""
    if terms.device.type == "cpu" and not terms.sum().isnan():
        return terms
    return torch.where(q == 0, 0.0, terms)


def _kl(log_first: Tensor, log_second: Tensor) -> Tensor:
    """KL(first || second) along the last dimension; 0 log 0 counts as 0."""
    difference = torch.where(log_first == -torch.inf, 0.0, log_first - log_second)
    return (log_first.exp() * difference).sum(dim=-1)
