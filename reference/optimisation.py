"""The optimizer steps of one task."""

import math

import torch

from reference import adapters, synaptic_intelligence
from reference.objective import backpropagate


def optimise(student, teacher, replay_minibatches, state, settings, task):
    """Take a task's optimizer steps; return SI's path integral omega and the terms of each step."""
    theta = adapters.coordinates(student)
    optimizer = torch.optim.AdamW(
        theta.values(), lr=settings.learning_rate, weight_decay=settings.weight_decay
    )
    if not replay_minibatches:  # a_D = 0, or every generation was empty
        replay_minibatches = [None] * len(task.minibatches)
    general = [task.general_minibatches] if task.general_minibatches else []
    pairs = list(zip(task.minibatches, replay_minibatches, *general, strict=True))
    windows = accumulation_windows(pairs, settings.accumulation, task.minibatches_per_epoch)
    in_epoch = len(accumulation_windows(pairs[: task.minibatches_per_epoch], settings.accumulation))
    cooldown = settings.cooldown * in_epoch
    warmup = max(1, math.floor(0.05 * (len(windows) - cooldown)))
    path = {name: torch.zeros_like(value) for name, value in theta.items()}
    steps = []
    student.train()
    for k, window in enumerate(windows, start=1):
        last = (len(windows) - k + 1) / cooldown if k > len(windows) - cooldown else 1.0
        optimizer.param_groups[0]["lr"] = settings.learning_rate * min(1.0, k / warmup) * last
        optimizer.zero_grad()
        gradient, terms = backpropagate(student, teacher, window, state, settings)
        torch.nn.utils.clip_grad_norm_(theta.values(), settings.clip)
        before = adapters.copied(theta)
        optimizer.step()
        if settings.si_strength is not None:
            path = synaptic_intelligence.extend_path(path, gradient, before, adapters.copied(theta))
        steps.append(terms)
    return path, steps


def accumulation_windows(pairs, accumulation, minibatches_per_epoch=None):
    """Windows of `accumulation` consecutive minibatches; an epoch's last one may be shorter."""
    per_epoch = minibatches_per_epoch or len(pairs)
    windows = []
    for start in range(0, len(pairs), per_epoch):
        epoch = pairs[start : start + per_epoch]
        for first in range(0, len(epoch), accumulation):
            windows.append(epoch[first : first + accumulation])
    return windows
