"""Divergences between a student's and its teacher's next-token distributions, token by token."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from holdfast.core.config import Config
from holdfast.model.projection import TokenLogits

Divergence = Literal["forward_kl", "reverse_kl", "jensen_shannon"]


class DivergenceConfig(Config):
    """How an anchor compares the student with its teacher."""

    temperature: float = Field(gt=0)  # tau
    divergence: Divergence = "forward_kl"
    vocabulary: int | None = Field(None, ge=1)  # only the teacher's likeliest tokens, this many

    def between(self, tokens: TokenLogits) -> Tensor:
        """The divergence at each token: [n]."""
        return divergence(
            self.divergence,
            tokens.teacher,
            tokens.student,
            self.temperature,
            self.vocabulary,
        )


def divergence(
    kind: Divergence,
    teacher: Tensor,
    student: Tensor,
    temperature: float,
    vocabulary: int | None = None,
) -> Tensor:
    """The divergence at each token, in float32 at least, times temperature squared: [n].

    teacher, student: logits [n, vocabulary]; temperature: tau > 0; vocabulary: keep only this many
    of the teacher's likeliest tokens, with both distributions renormalised; None: keep all.
    Source: eq. app-replay-loss, eq. app-function-loss (forward KL over the full vocabulary).
    """
    if vocabulary is not None and vocabulary < teacher.shape[-1]:
        likeliest = teacher.topk(vocabulary, dim=-1).indices
        teacher, student = teacher.gather(-1, likeliest), student.gather(-1, likeliest)
    if kind == "forward_kl":
        forward: Tensor = _ForwardKL.apply(teacher, student, temperature)  # type: ignore[no-untyped-call]
        return forward
    log_q, log_p = _log_softmax(teacher, temperature), _log_softmax(student, temperature)
    if kind == "reverse_kl":
        value = _kl(log_p, log_q)
    else:
        # If both probabilities are 0, any finite value does: its weight and gradient are 0.
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
        log_q, log_p = _log_softmax(teacher, temperature), _log_softmax(student, temperature)
        q = log_q.exp()
        value = _without_zeros(log_q.sub_(log_p).mul_(q), q).sum(dim=-1)  # [n]
        ctx.save_for_backward(log_p.exp_().sub_(q))  # p - q, [n, vocabulary]
        ctx.temperature, ctx.dtype = temperature, student.dtype
        return value * temperature**2

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[None, Tensor, None]:
        (difference,) = ctx.saved_tensors
        gradient = torch.empty_like(difference, dtype=ctx.dtype)
        torch.mul(difference, upstream[0][:, None] * ctx.temperature, out=gradient)
        return None, gradient, None


def _log_softmax(logits: Tensor, temperature: float) -> Tensor:
    """Log-softmax of ``logits / temperature``, in float32 at least."""
    wide = torch.promote_types(logits.dtype, torch.float32)
    if wide == logits.dtype:
        return F.log_softmax(logits / temperature, dim=-1)
    divisor = torch.full((1,), temperature, dtype=wide, device=logits.device)
    return F.log_softmax(logits / divisor, dim=-1)


def _without_zeros(terms: Tensor, q: Tensor) -> Tensor:
    """0 log 0 is NaN and counts as 0: check on CPU, always mask on GPU to avoid a sync."""
    if terms.device.type == "cpu" and not terms.sum().isnan():
        return terms
    return torch.where(q == 0, 0.0, terms)


def _kl(log_first: Tensor, log_second: Tensor) -> Tensor:
    """KL(first || second) along the last dimension; 0 log 0 counts as 0."""
    difference = torch.where(log_first == -torch.inf, 0.0, log_first - log_second)
    return (log_first.exp() * difference).sum(dim=-1)
