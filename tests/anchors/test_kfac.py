"""The curvature anchor: the quadratic form, its gradient, and whose curvature it holds."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from holdfast.anchors.base import State, Step, TaskEnd, TaskStart, Update
from holdfast.anchors.kfac import KroneckerFisher, quadratic_form
from holdfast.model.kronecker import KroneckerFactors
from holdfast.model.moments import DenseMoment
from tests.tiny import normal

D_OUT, D_IN, RHO = 5, 4, 1.7


def factors_of(seed: int) -> KroneckerFactors:
    S, G = normal(9, D_IN, seed=seed), normal(9, D_OUT, seed=seed + 1)
    return KroneckerFactors(DenseMoment(S.t() @ S), DenseMoment(G.t() @ G))


def update(seed: int, rank: int = 2) -> Update:
    lora_B, lora_A = normal(D_OUT, rank, seed=seed), normal(rank, D_IN, seed=seed + 1)
    return Update(lora_B.requires_grad_(), lora_A.requires_grad_(), RHO)


def dense_form(updates: dict[str, Update], curvature: dict[str, KroneckerFactors]) -> Tensor:
    """1/2 vec(dW)^T (G (x) S) vec(dW), the Kronecker product written out."""
    total = torch.zeros((), dtype=torch.float64)
    for name, update in updates.items():
        change = (update.scale * update.lora_B @ update.lora_A).flatten()
        factors = curvature[name]
        product = torch.kron(factors.outputs.dense(), factors.inputs.dense())
        total = total + 0.5 * change @ product @ change
    return total


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 3))
def test_the_form_and_its_gradient_are_the_dense_ones(seed: int, rank: int) -> None:
    curvature = {name: factors_of(seed + 10 * n) for n, name in enumerate("ab")}
    updates = {name: update(seed + 7 * n, rank) for n, name in enumerate("ab")}
    leaves = [part for update in updates.values() for part in (update.lora_B, update.lora_A)]
    ours, theirs = quadratic_form(updates, curvature), dense_form(updates, curvature)
    torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=0)
    pairs = zip(
        torch.autograd.grad(3 * ours, leaves), torch.autograd.grad(3 * theirs, leaves), strict=True
    )
    for gradient, expected in pairs:
        torch.testing.assert_close(gradient, expected, rtol=1e-10, atol=1e-12)


def test_a_half_precision_context_does_not_take_the_form() -> None:
    """Autocast leaves float64 alone, so this is in float32."""
    S, G = DenseMoment(torch.eye(D_IN)), DenseMoment(torch.eye(D_OUT))
    curvature = {"a": KroneckerFactors(S, G)}
    wide = update(3)
    updates = {"a": Update(wide.lora_B.float(), wide.lora_A.float(), RHO)}
    expected = quadratic_form(updates, curvature)
    with torch.autocast("cpu", torch.bfloat16):
        assert quadratic_form(updates, curvature).equal(expected)


def start(task: int, past: int, given: Any = None, general: int = 0) -> TaskStart:
    return TaskStart(task, {"a": torch.zeros(1)}, 10, past, given, general)


def end(task: int, task_factors: dict[str, KroneckerFactors]) -> TaskEnd:
    unused: Any = None
    return TaskEnd(task, {"a": torch.zeros(1)}, 10, unused, lambda: task_factors)


def step() -> Step:
    unused: Any = None
    at = {"a": torch.zeros(1, dtype=torch.float64)}
    return Step(at, unused, unused, {"a": update(3)})


class Driven:
    """The anchor and its state, as a loop holds them."""

    def __init__(self, state: State | None = None, **settings: Any) -> None:
        self.anchor = KroneckerFisher(KroneckerFisher.Config.model_validate(settings))
        self.state: State = state or {}

    def begin(self, start: TaskStart) -> None:
        self.state = self.anchor.begin(self.state, start)

    def end(self, end: TaskEnd) -> None:
        self.state = self.anchor.end(self.state, end)

    def term(self) -> Tensor:
        """The weighted term of one step."""
        return self.anchor.strength(self.state) * self.anchor.loss(self.state, step())

    def reloaded(self) -> Driven:
        """Another one, from what a file would hold."""
        packed = {name: tensor.clone() for name, tensor in self.anchor.pack(self.state).items()}
        return Driven(self.anchor.unpack(packed), **self.anchor.config.model_dump())


def expected(*weighted: tuple[float, dict[str, KroneckerFactors]]) -> Tensor:
    total = {
        side: sum(w * getattr(factors["a"], side).dense() for w, factors in weighted)
        for side in ("inputs", "outputs")
    }
    mean = {"a": KroneckerFactors(*(DenseMoment(total[side]) for side in ("inputs", "outputs")))}
    return dense_form(step().updates, mean)  # type: ignore[arg-type]


def test_general_text_of_which_nothing_is_left_does_not_count() -> None:
    first = {"a": factors_of(50)}
    anchor = Driven(strength=2.0)
    anchor.begin(start(1, 0, None, general=20))
    assert "penalty" not in anchor.state
    anchor.end(end(1, first))
    anchor.begin(start(2, 10, None, general=20))
    torch.testing.assert_close(anchor.term(), 2 * 10 / 10 * expected((1, first)))


def test_nothing_is_held_before_a_past_exists() -> None:
    for source in ("own", "written"):
        anchor = Driven(source=source)
        anchor.begin(start(1, 0))
        assert anchor.anchor.loss(anchor.state, step()).item() == 0.0


def test_written_sequences_are_asked_anew_and_leave_no_state() -> None:
    first, second, task_factors = ({"a": factors_of(seed)} for seed in (1, 50, 90))
    anchor = Driven(source="written", strength=20.0, per_item=False)
    for number, written in ((2, first), (3, second)):
        anchor.begin(start(number, 10 * (number - 1), written))
        torch.testing.assert_close(anchor.term(), 20 * expected((1, written)))
        torch.testing.assert_close(anchor.reloaded().term(), anchor.term())
        anchor.end(end(number, task_factors))
        assert anchor.state == anchor.reloaded().state == {}
    kept = {"past": first}
    with pytest.raises(KeyError, match="between tasks, where none is kept"):
        anchor.anchor.unpack(anchor.anchor.pack(kept))
    with pytest.raises(KeyError, match="future is no part of a state"):
        anchor.anchor.unpack({"future a": torch.zeros(1)})


def test_what_the_previous_model_writes_is_needed_by_who_looks_at_it() -> None:
    own = KroneckerFisher(KroneckerFisher.Config()).needs
    assert own.prior_curvature and not own.curvature
    assert KroneckerFisher(KroneckerFisher.Config(source="written")).needs.curvature


def test_a_state_in_the_middle_of_a_task_goes_through_a_file() -> None:
    general, first = ({"a": factors_of(seed)} for seed in (1, 50))
    anchor = Driven(max_items=12)
    anchor.begin(start(1, 0, general, general=20))
    anchor.end(end(1, first))
    anchor.begin(start(2, 10, None, general=20))
    again = anchor.reloaded()
    assert torch.equal(again.term(), anchor.term())
    for each in (anchor, again):
        each.end(end(2, {"a": factors_of(90)}))
        each.begin(start(3, 20, None, general=20))
    assert torch.equal(again.term(), anchor.term())
