"""The optimiser of one task: its warm-up, and that it is AdamW."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn

from holdfast.learning.config import Optimisation
from holdfast.learning.training import TaskOptimizer, warmup_steps


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
