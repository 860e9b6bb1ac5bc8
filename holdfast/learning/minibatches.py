"""Which sequences meet in which step: named draws, so that compositions stay paired."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from holdfast.core.seeding import generator


def current_minibatches(seed: int, task: int, epoch: int, count: int, size: int) -> list[list[int]]:
    """The task's ``count`` sequences in this epoch's order, cut into minibatches of indices."""
    order = torch.randperm(count, generator=generator(seed, "order", task, epoch)).tolist()
    return [order[start : start + size] for start in range(0, count, size)]


def replay_minibatches(
    seed: int, task: int, epoch: int, count: int, size: int, at_once: int
) -> Iterator[list[int]]:
    """Replay indices for one step after another, without end.

    A shuffled iterator is made anew every epoch and whenever it is exhausted; its last minibatch
    may be short. at_once: minibatches a step.
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
