"""O-LoRA's penalties and gradient projection against the reference, in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from holdfast.allocation.base import Opening, State
from holdfast.allocation.olora import OLoRA
from holdfast.model.lora import LoraSettings, LoraWorkspace
from reference import allocation as plain
from tests.tiny import draw_factors, exact_backbone

RANK = 3
TASKS = (1, 2, 7)


def workspace() -> LoraWorkspace:
    backbone = exact_backbone()
    backbone.adapt(LoraSettings(rank=RANK, alpha=4, targets=("q_proj", "down_proj")))
    return backbone.workspace


def after_tasks(
    count: int, **settings: Any
) -> tuple[OLoRA, State, LoraWorkspace, list[dict[str, Any]]]:
    """A rule, its state of so many frozen pairs, random current factors, and the pairs."""
    rule, adapters, past = OLoRA(OLoRA.Config(**settings)), workspace(), []
    state: State = {}
    for task in range(1, count + 2):
        state = rule.begin(state, adapters, Opening(task, seed=0))
        draw_factors(adapters.parameters(), std=1.0, seed=task)
        if task <= count:
            past.append(
                {
                    name: (layer.lora_A.detach().clone(), layer.lora_B.detach().clone())
                    for name, layer in adapters.layers.items()
                }
            )
            state = rule.retire(state, adapters)
    return rule, state, adapters, past


def with_gradients(adapters: LoraWorkspace) -> dict[str, tuple[Tensor, Tensor]]:
    """Give every factor a random gradient."""
    source = torch.Generator().manual_seed(5)
    for factor in adapters.parameters().values():
        factor.grad = torch.randn(factor.shape, generator=source, dtype=factor.dtype)
    return {name: (layer.lora_A.grad, layer.lora_B.grad) for name, layer in adapters.layers.items()}


def stacked(past: list[dict[str, Any]]) -> dict[str, Tensor]:
    return {name: plain.concatenate([task[name] for task in past])[0] for name in past[0]}


def test_the_sum_of_the_pairs_is_exact_in_a_narrow_backbone() -> None:
    """It is summed in float32 and rounded once, however many pairs there are."""
    backbone = exact_backbone()
    backbone.model.to(torch.bfloat16)
    backbone.adapt(LoraSettings(rank=RANK, alpha=4, targets=("q_proj",)))
    adapters = backbone.workspace
    rule = OLoRA(OLoRA.Config())
    state: State = {}
    exact = {name: adapters.dense()[name].double() for name in adapters.layers}
    for task in range(1, 31):
        state = rule.begin(state, adapters, Opening(task, seed=0))
        draw_factors(adapters.parameters(), std=0.01, seed=task)
        for name, layer in adapters.layers.items():
            exact[name] += (
                layer.scale * layer.lora_B.detach().double() @ layer.lora_A.detach().double()
            )
        state = rule.retire(state, adapters)
    for name, layer in adapters.layers.items():
        torch.testing.assert_close(adapters.dense()[name].double(), exact[name], rtol=0, atol=1e-6)
        assert layer.weight.dtype == torch.bfloat16
        assert torch.equal(layer.weight, adapters.dense()[name].bfloat16())


@pytest.mark.parametrize("tasks", TASKS)
@pytest.mark.parametrize(("overlap", "norm"), [(0.5, 0.0), (0.0, 0.3), (0.5, 0.3)])
def test_penalties(overlap: float, norm: float, tasks: int) -> None:
    """eq. app-olora-orth, eq. app-olora-l2; the gradient of every factor with them."""
    rule, state, adapters, past = after_tasks(tasks, overlap=overlap, factor_norm=norm)
    current = {name: (layer.lora_A, layer.lora_B) for name, layer in adapters.layers.items()}
    theirs = norm * plain.factor_norm(current)
    theirs = theirs + overlap * plain.overlap(
        stacked(past), {name: down for name, (down, _) in current.items()}
    )
    ours = rule.penalty(state, adapters)
    assert ours is not None
    torch.testing.assert_close(ours, theirs, rtol=1e-13, atol=0)
    factors = [factor for pair in current.values() for factor in pair]
    first = torch.autograd.grad(ours, factors, allow_unused=True, materialize_grads=True)
    second = torch.autograd.grad(theirs, factors, allow_unused=True, materialize_grads=True)
    torch.testing.assert_close(first, second, rtol=1e-12, atol=1e-14)
    assert ours > 1


def test_no_overlap_on_the_first_task() -> None:
    rule, adapters = OLoRA(OLoRA.Config()), workspace()
    state = rule.begin({}, adapters, Opening(1, seed=0))
    assert rule.penalty(state, adapters) is None


def test_the_norm_of_a_fresh_b_has_a_gradient_of_zero() -> None:
    rule, adapters = OLoRA(OLoRA.Config(overlap=0, factor_norm=1)), workspace()
    state = rule.begin({}, adapters, Opening(1, seed=0))
    penalty = rule.penalty(state, adapters)
    assert penalty is not None
    penalty.backward()
    assert all(factor.grad.isfinite().all() for factor in adapters.parameters().values())
    assert all(not layer.lora_B.grad.any() for layer in adapters.layers.values())


@pytest.mark.parametrize("tasks", TASKS)
def test_the_frozen_pairs_are_represented(tasks: int) -> None:
    """W_0 + rho sum_s B_s A_s, and tP_r remembered scalars' input sides.  eq. app-olora-sum."""
    _, state, adapters, past = after_tasks(tasks)
    untouched = workspace()
    remembered = {name.removeprefix("past "): rows for name, rows in state.items()}
    assert remembered.keys() == adapters.layers.keys()
    for name in adapters.layers:
        pairs = [task[name] for task in past]
        expected = plain.o_lora_weight(untouched.dense()[name], pairs, adapters.layers[name].scale)
        torch.testing.assert_close(adapters.dense()[name], expected, rtol=1e-12, atol=1e-13)
        assert torch.equal(remembered[name], stacked(past)[name])
        assert remembered[name].shape == (tasks * RANK, 32 if "down" in name else 16)


def test_projected_gradients() -> None:
    rule, state, adapters, past = after_tasks(2, project_gradient=True)
    state = rule.begin(state, adapters, Opening(3, seed=0))
    gradients = with_gradients(adapters)
    before = {name: down.clone() for name, (down, _) in gradients.items()}
    ups = {name: up.clone() for name, (_, up) in gradients.items()}
    rule.adjust_gradient(state, adapters)
    for name, layer in adapters.layers.items():
        down, up = layer.lora_A.grad, layer.lora_B.grad
        expected = plain.project_gradient(before[name], stacked(past)[name])
        torch.testing.assert_close(down, expected, rtol=1e-10, atol=1e-12)
        assert (down @ stacked(past)[name].T).abs().max() < 1e-11
        assert (down - before[name]).abs().max() > 0.1
        assert torch.equal(up, ups[name])


def test_pairs_that_repeat_each_other_span_no_more_than_one() -> None:
    rule, state, adapters, past = after_tasks(1, project_gradient=True)
    state = {name: torch.cat([rows, rows]) for name, rows in state.items() if "past" in name}
    state = rule.begin(state, adapters, Opening(3, seed=0))
    before = {name: down.clone() for name, (down, _) in with_gradients(adapters).items()}
    rule.adjust_gradient(state, adapters)
    for name, layer in adapters.layers.items():
        expected = plain.project_gradient(before[name], stacked(past)[name])
        torch.testing.assert_close(layer.lora_A.grad, expected, rtol=1e-10, atol=1e-12)


def test_gradients_are_left_alone_by_default() -> None:
    rule, state, adapters, _ = after_tasks(2)
    before = {name: pair[0].clone() for name, pair in with_gradients(adapters).items()}
    rule.adjust_gradient(state, adapters)
    assert all(
        torch.equal(adapters.layers[name].lora_A.grad, gradient)
        for name, gradient in before.items()
    )
