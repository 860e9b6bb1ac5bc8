"""O-LoRA's penalties and gradient projection against the reference, in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from holdfast.allocation.base import Opening
from holdfast.allocation.o_lora import OLoRA
from holdfast.backbone.adapters.workspace import Adapters
from reference import allocation as plain
from tests.tiny import exact_backbone

RANK = 3
PAGES = (1, 2, 16, 17, 33)  # tasks: within a page, just full, just begun, several


def workspace() -> Adapters:
    backbone = exact_backbone()
    config = Adapters.Config(rank=RANK, alpha=4, targets=("q_proj", "down_proj"))
    return Adapters(backbone.model, config, backbone.head)


def after_tasks(count: int, **settings: Any) -> tuple[OLoRA, Adapters, list[dict[str, Any]]]:
    """A rule with so many frozen pairs, random current factors, and the pairs."""
    rule, adapters, past = OLoRA(OLoRA.Config(**settings)), workspace(), []
    for task in range(1, count + 2):
        rule.begin(adapters, Opening(task, seed=0))
        with torch.no_grad():
            adapters.parameters.normal_(generator=torch.Generator().manual_seed(task))
        if task <= count:
            past.append(
                {
                    name: (layer.down.detach().clone(), layer.up.detach().clone())
                    for name, layer in adapters.layers.items()
                }
            )
            rule.retire(adapters)
    return rule, adapters, past


def stacked(past: list[dict[str, Any]]) -> dict[str, Tensor]:
    return {name: plain.concatenate([task[name] for task in past])[0] for name in past[0]}


def test_the_sum_of_the_pairs_is_exact_in_a_narrow_backbone() -> None:
    """It is summed in float32 and rounded once, however many pairs there are."""
    backbone = exact_backbone()
    backbone.model.to(torch.bfloat16)
    config = Adapters.Config(rank=RANK, alpha=4, targets=("q_proj",))
    adapters = Adapters(backbone.model, config, backbone.head)
    rule = OLoRA(OLoRA.Config())
    exact = {name: adapters.dense(name).double() for name in adapters.layers}
    for task in range(1, 31):
        rule.begin(adapters, Opening(task, seed=0))
        with torch.no_grad():
            adapters.parameters.normal_(0, 0.01, generator=torch.Generator().manual_seed(task))
        for name, layer in adapters.layers.items():
            exact[name] += (
                adapters.scale * layer.up.detach().double() @ layer.down.detach().double()
            )
        rule.retire(adapters)
    for name, layer in adapters.layers.items():
        torch.testing.assert_close(adapters.dense(name).double(), exact[name], rtol=0, atol=1e-6)
        assert layer.base.weight.dtype == torch.bfloat16
        assert torch.equal(layer.base.weight, adapters.dense(name).bfloat16())


@pytest.mark.parametrize("tasks", PAGES)
@pytest.mark.parametrize(("overlap", "norm"), [(0.5, 0.0), (0.0, 0.3), (0.5, 0.3)])
def test_penalties(overlap: float, norm: float, tasks: int) -> None:
    """eq. app-olora-orth, eq. app-olora-l2; the gradient of every factor with them."""
    rule, adapters, past = after_tasks(tasks, overlap=overlap, factor_norm=norm)
    current = {name: (layer.down, layer.up) for name, layer in adapters.layers.items()}
    theirs = norm * plain.factor_norm(current)
    theirs = theirs + overlap * plain.overlap(
        stacked(past), {name: down for name, (down, _) in current.items()}
    )
    ours = rule.penalty(adapters)
    assert ours is not None
    torch.testing.assert_close(ours, theirs, rtol=1e-13, atol=0)
    factors = [factor for pair in current.values() for factor in pair]
    first = torch.autograd.grad(ours, factors, allow_unused=True, materialize_grads=True)
    second = torch.autograd.grad(theirs, factors, allow_unused=True, materialize_grads=True)
    torch.testing.assert_close(first, second, rtol=1e-12, atol=1e-14)
    assert ours > 1


def test_no_overlap_on_the_first_task() -> None:
    rule, adapters = OLoRA(OLoRA.Config()), workspace()
    rule.begin(adapters, Opening(1, seed=0))
    assert rule.penalty(adapters) is None


def test_the_norm_of_a_fresh_b_has_a_gradient_of_zero() -> None:
    rule, adapters = OLoRA(OLoRA.Config(overlap=0, factor_norm=1)), workspace()
    rule.begin(adapters, Opening(1, seed=0))
    penalty = rule.penalty(adapters)
    assert penalty is not None
    penalty.backward()
    assert adapters.gradient.isfinite().all()
    assert all(not layer.up.grad.any() for layer in adapters.layers.values())


@pytest.mark.parametrize("tasks", PAGES)
def test_the_frozen_pairs_are_represented(tasks: int) -> None:
    """W_0 + rho sum_s B_s A_s, and tP_r remembered scalars' input sides.  eq. app-olora-sum."""
    rule, adapters, past = after_tasks(tasks)
    untouched, remembered = workspace(), rule.past(adapters)
    assert remembered.keys() == adapters.layers.keys()
    for name in adapters.layers:
        pairs = [task[name] for task in past]
        expected = plain.o_lora_weight(untouched.dense(name), pairs, adapters.scale)
        torch.testing.assert_close(adapters.dense(name), expected, rtol=1e-12, atol=1e-13)
        assert torch.equal(remembered[name], stacked(past)[name])
        assert remembered[name].shape == (tasks * RANK, 32 if "down" in name else 16)


def test_projected_gradients() -> None:
    rule, adapters, past = after_tasks(2, project_gradient=True)
    rule.begin(adapters, Opening(3, seed=0))
    adapters.gradient.normal_(generator=torch.Generator().manual_seed(5))
    before = {name: down.clone() for name, (down, _) in adapters.split(adapters.gradient).items()}
    ups = {name: up.clone() for name, (_, up) in adapters.split(adapters.gradient).items()}
    rule.adjust_gradient(adapters)
    for name, (down, up) in adapters.split(adapters.gradient).items():
        expected = plain.project_gradient(before[name], stacked(past)[name])
        torch.testing.assert_close(down, expected, rtol=1e-10, atol=1e-12)
        assert (down @ stacked(past)[name].T).abs().max() < 1e-11
        assert (down - before[name]).abs().max() > 0.1
        assert torch.equal(up, ups[name])


def test_gradients_are_left_alone_by_default() -> None:
    rule, adapters, _ = after_tasks(2)
    adapters.gradient.fill_(1.0)
    rule.adjust_gradient(adapters)
    assert (adapters.gradient == 1.0).all()
