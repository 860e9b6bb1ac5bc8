"""Minibatches of each step, drawn from named seeds so that all methods see the same order."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from holdfast.core.seeding import generator


def current_minibatches(seed: int, task: int, epoch: int, count: int, size: int) -> list[list[int]]:
    """Indices of the task's ``count`` sequences, shuffled for this epoch, in minibatches."""
    order = torch.randperm(count, generator=generator(seed, "order", task, epoch)).tolist()
    return [order[start : start + size] for start in range(0, count, size)]


def replay_minibatches(
    seed: int, task: int, epoch: int, count: int, size: int, at_once: int
) -> Iterator[list[int]]:
    """Yield the replay indices of each step, endlessly.

    The indices are reshuffled every epoch and whenever they are exhausted; the last minibatch of a
    shuffle may be short. at_once: minibatches per step.
    Source: alg. replay.
    """

    def minibatches() -> Iterator[list[int]]:
        pass_number = 0
        while True:
            source = generator(seed, "replay order", task, epoch, pass_number)
            order = torch.randperm(count, generator=source).tolist()
            yield from (order[start : start + size] for start in range(0, count, size))
            pass_number += 1

    endless = minibatches()
    while True:
        yield [index for _ in range(at_once) for index in next(endless)]
