"""A task's order and its optimiser: minibatches, replay beside them, AdamW and its rate."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import chain, islice
from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn

from holdfast.core.seeding import generator
from holdfast.learning.config import Optimisation
from holdfast.learning.training import (
    TaskOptimizer,
    current_minibatches,
    replay_minibatches,
    warmup_steps,
)
from reference.replay import paired_minibatches

COUNTS, SIZES = st.integers(1, 60), st.integers(1, 20)


@given(st.integers(0, 2**31), COUNTS, SIZES)
def test_every_index_once_an_epoch(seed: int, count: int, size: int) -> None:
    minibatches = current_minibatches(seed, 3, 2, count, size)
    assert sorted(chain.from_iterable(minibatches)) == list(range(count))
    assert all(len(minibatch) == size for minibatch in minibatches[:-1])
    assert 1 <= len(minibatches[-1]) <= size


@pytest.mark.parametrize(
    "order",
    [
        lambda *name: current_minibatches(*name, 50, 8),
        lambda *name: next(replay_minibatches(*name, 50, 50, 1)),
    ],
)
def test_orders_are_named_by_seed_task_and_epoch(order: Callable[..., Any]) -> None:
    assert order(1, 2, 3) == order(1, 2, 3)
    different = [order(1, 2, 3), order(2, 2, 3), order(1, 3, 3), order(1, 2, 4), order(3, 2, 1)]
    assert len({str(minibatches) for minibatches in different}) == len(different)


@given(st.integers(0, 2**31), COUNTS, SIZES, st.integers(1, 4), st.integers(1, 9))
def test_replay_is_the_references(
    seed: int, count: int, size: int, at_once: int, steps: int
) -> None:
    """An exhausted iterator starts over; the last minibatch of a pass may be short."""

    def order(epoch: int, number: int) -> list[int]:
        source = generator(seed, "replay order", 2, epoch, number)
        return torch.randperm(count, generator=source).tolist()

    epochs = [replay_minibatches(seed, 2, epoch, count, size, 1) for epoch in range(2)]
    ours = [minibatch for epoch in epochs for minibatch in islice(epoch, steps)]
    assert ours == paired_minibatches(range(count), size, steps, 2, order)
    # Several at once are the same minibatches, joined.
    taken = ours[:steps]
    joined = islice(replay_minibatches(seed, 2, 0, count, size, at_once), steps // at_once)
    for step, minibatch in enumerate(joined):
        parts = taken[step * at_once : (step + 1) * at_once]
        assert minibatch == list(chain.from_iterable(parts))


def test_passes_are_shuffled_anew_and_not_as_the_task_is() -> None:
    passes = list(islice(replay_minibatches(1, 2, 0, 50, 50, 1), 3))
    assert len({str(order) for order in passes}) == 3
    assert passes[0] != current_minibatches(1, 2, 0, 50, 50)[0]


@example(100, 290)
@example(1, 50)
@given(st.integers(1, 10_000), st.integers(0, 1000))
def test_any_share_of_a_thousand(steps: int, share: int) -> None:
    """A decimal share is meant exactly: 0.29 of 100 steps is 29, as floats alone would not say."""
    exact = Fraction(share, 1000) * steps
    assert warmup_steps(steps, share / 1000) == max(1, exact.numerator // exact.denominator)


@pytest.mark.parametrize(("steps", "share"), [(60, 0.05), (7, 0.05), (10, 0.5), (4, 1.0), (5, 0.0)])
def test_each_step_is_adamw_at_its_rate(steps: int, share: float) -> None:
    """Step k of the first W runs at lr k / W, the others at lr; as torch's own, stepped by hand."""
    settings = Optimisation(lr=0.1, weight_decay=0.3, warmup=share)
    source = torch.Generator().manual_seed(0)
    ours = nn.Parameter(torch.randn(50, generator=source, dtype=torch.float64))
    theirs = nn.Parameter(ours.detach().clone())
    optimizer = TaskOptimizer([ours], settings, steps)
    plain = torch.optim.AdamW([theirs], lr=1.0, weight_decay=0.3)
    warmup = max(1, int(share * steps))
    for k in range(1, steps + 1):
        ours.grad = torch.randn(50, generator=source, dtype=torch.float64)
        theirs.grad = ours.grad.clone()
        plain.param_groups[0]["lr"] = 0.1 * (k / warmup if k < warmup else 1.0)
        optimizer.step()
        plain.step()
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-14)


def test_nothing_is_carried_from_task_to_task() -> None:
    """A second optimiser's first step is the first one's: no moments, warm-up anew."""
    moved = []
    for _ in range(2):
        parameters = nn.Parameter(torch.zeros(1))
        optimizer = TaskOptimizer([parameters], Optimisation(lr=0.1), 100)
        parameters.grad = torch.ones(1)
        optimizer.step()
        moved.append(parameters.item())
    assert moved[0] == moved[1] == pytest.approx(-0.1 / 5, rel=1e-5)


@pytest.mark.parametrize("warmup", [0.05, 1.0])
def test_in_a_cooldown_the_rate_falls_to_nothing(warmup: float) -> None:
    """From the rate of before, in equal parts, of which the last step still has one."""
    optimizer = TaskOptimizer(
        [nn.Parameter(torch.zeros(1))], Optimisation(lr=0.1, warmup=warmup), 8
    )
    rates = []
    for step in range(12):
        if step == 8:
            optimizer.cool_down(4)
        optimizer.step()
        rates.append(optimizer.rate)
    assert rates[8:] == pytest.approx([0.1, 0.075, 0.05, 0.025])
    assert rates[7] == 0.1
