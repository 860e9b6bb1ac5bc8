"""Divergences between a teacher's and a student's next-token distributions."""

import math

import torch


def masked_mean(values, mask):
    """Sum of a * values over sum of a. values, mask: [batch, positions]."""
    a = mask.to(values.dtype)
    return (a * values).sum() / a.sum()


def kl(log_q, log_p):
    """KL(q || p) at every position. log_q, log_p: log-probabilities [..., vocabulary]."""
    return (log_q.exp() * (log_q - log_p)).sum(dim=-1)


def forward_kl(teacher, student, mask, temperature):
    """tau^2 times the masked mean of KL(q || p), q the teacher's distribution.

    teacher, student: logits [batch, positions, vocabulary]; mask: [batch, positions].
    Source: eq. app-replay-loss, app-function-loss.
    """
    log_q = torch.log_softmax(teacher / temperature, dim=-1)
    log_p = torch.log_softmax(student / temperature, dim=-1)
    return temperature**2 * masked_mean(kl(log_q, log_p), mask)


def reverse_kl(teacher, student, mask, temperature):
    """tau^2 times the masked mean of KL(p || q); shapes as in forward_kl."""
    log_q = torch.log_softmax(teacher / temperature, dim=-1)
    log_p = torch.log_softmax(student / temperature, dim=-1)
    return temperature**2 * masked_mean(kl(log_p, log_q), mask)


def jensen_shannon(teacher, student, mask, temperature):
    """tau^2 times the masked mean of (KL(q || m) + KL(p || m)) / 2 with m = (q + p) / 2."""
    log_q = torch.log_softmax(teacher / temperature, dim=-1)
    log_p = torch.log_softmax(student / temperature, dim=-1)
    log_m = torch.logaddexp(log_q, log_p) - math.log(2)
    return temperature**2 * masked_mean((kl(log_q, log_m) + kl(log_p, log_m)) / 2, mask)


def truncate(teacher, student, k):
    """Both logits on the teacher's k most likely tokens only: [batch, positions, k].

    A softmax over these renormalises both distributions over the kept tokens, so that
    `forward_kl(*truncate(teacher, student, k), mask, temperature)` is the truncated divergence.
    """
    kept = teacher.topk(k, dim=-1).indices
    return teacher.gather(-1, kept), student.gather(-1, kept)
