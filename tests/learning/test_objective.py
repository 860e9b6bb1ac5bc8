"""How the terms of one minibatch are composed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from holdfast.anchors.base import State, Step
from holdfast.learning.training import Weights, compose, current_loss
from holdfast.model.projection import Projection
from tests.tiny import exact_backbone


class Fixed:
    """An anchor whose loss is a function of the parameters; replay: it is the data anchor."""

    def __init__(self, strength: float, loss: Callable[[Tensor], Tensor], replay: bool) -> None:
        self._strength, self._loss, self.in_fit = strength, loss, replay

    def strength(self, state: State) -> float:
        return self._strength

    def loss(self, state: State, step: Step) -> Tensor:
        return self._loss(step.parameters["a"])


W = 0.3
STATES: dict[str, State] = {"penalty": {}, "replay": {}, "nothing yet": {}}


def terms_of(
    step: Step, anchors: Any, weights: Weights, is_answer: Any = None, counts: bool = True
) -> tuple[Tensor, Tensor | None, dict[str, Tensor]]:
    loss, measured = current_loss(step, weights, is_answer)
    options = {"replay_weight": weights.replay, "replay_counts_for_path": counts}
    fit, rest, values = compose(loss, step, anchors, STATES, **options)
    return fit, rest, measured | values


def anchors() -> list[tuple[str, Any]]:
    return [
        ("penalty", Fixed(5.0, lambda at: at.square().sum(), replay=False)),
        ("replay", Fixed(W, lambda at: (2 * at).sum(), replay=True)),
        ("nothing yet", Fixed(1e9, lambda at: at.new_zeros(()), replay=False)),
    ]


def view(with_replay: bool) -> tuple[Step, Tensor, Tensor]:
    """Also the current loss, recomputed."""
    backbone = exact_backbone()
    source = torch.Generator().manual_seed(0)
    at = torch.randn(16, generator=source, dtype=torch.float64).requires_grad_()
    hidden = torch.randn(5, 16, generator=source, dtype=torch.float64) * at
    targets = torch.randint(257, (5,), generator=source)
    projection = Projection(backbone, hidden, None, targets)
    sft = F.cross_entropy(backbone.logits(hidden), targets)
    return Step({"a": at}, projection, projection if with_replay else None), at, sft


def assert_same(ours: Tensor | None, theirs: Tensor, at: Tensor) -> None:
    assert ours is not None
    torch.testing.assert_close(ours, theirs, rtol=1e-13, atol=0)
    (first,) = torch.autograd.grad(ours, at, retain_graph=True)
    (second,) = torch.autograd.grad(theirs, at, retain_graph=True)
    torch.testing.assert_close(first, second, rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("counts", [True, False])
def test_with_a_replay_minibatch(counts: bool) -> None:
    """(1 - w) L_SFT + w L_D + lambda R; under O-LoRA the path is the first alone."""
    step, at, sft = view(with_replay=True)
    fit, rest, values = terms_of(step, anchors(), Weights(1 - W, 1 - W, W), counts=counts)
    current, replay, penalty = (1 - W) * sft, W * (2 * at).sum(), 5 * at.square().sum()
    assert_same(fit, current + replay if counts else current, at)
    assert_same(rest, penalty if counts else penalty + replay, at)
    assert values["sft"].item() == pytest.approx(sft.item())
    assert values["replay"].item() == pytest.approx((2 * at).sum().item())
    assert values["penalty"].item() == pytest.approx(at.square().sum().item())
    assert not any(value.requires_grad for value in values.values())


@pytest.mark.parametrize("counts", [True, False])
def test_without_one_the_current_loss_has_its_whole_weight(counts: bool) -> None:
    step, at, sft = view(with_replay=False)
    fit, rest, _ = terms_of(step, anchors(), Weights(), counts=counts)
    assert_same(fit, sft, at)
    assert_same(rest, 5 * at.square().sum(), at)


def test_nothing_else_to_minimise() -> None:
    step, at, sft = view(with_replay=False)
    fit, rest, values = terms_of(step, anchors()[2:], Weights())
    assert rest is None
    assert_same(fit, sft, at)
    assert values["nothing yet"].item() == 0.0


@pytest.mark.parametrize("at_once", [None, 257 * 2], ids=["at once", "in chunks"])
def test_questions_and_answers_weigh_differently(at_once: int | None) -> None:
    """Each token's loss by its weight, over the number of all tokens; and what was acquired."""
    backbone = exact_backbone()
    source = torch.Generator().manual_seed(0)
    at = torch.randn(16, generator=source, dtype=torch.float64).requires_grad_()
    hidden = torch.randn(5, 16, generator=source, dtype=torch.float64) * at
    logits = backbone.logits(hidden)
    targets = torch.randint(257, (5,), generator=source)
    targets[3] = logits[3].argmax()  # of two answer tokens one is the likeliest
    is_answer = torch.tensor([False, False, False, True, True])
    projection = Projection(backbone, hidden, None, targets, at_once)
    step = Step({"a": at}, projection, None)
    fit, _, values = terms_of(step, [], Weights(0.1, 0.7), is_answer)
    each = F.cross_entropy(logits, targets, reduction="none")
    by_hand = (0.1 * each[:3].sum() + 0.7 * each[3:].sum()) / 5
    assert_same(fit, by_hand, at)
    assert values["sft"].item() == pytest.approx(each.mean().item())
    assert values["acquired"].item() == 0.5


@pytest.mark.parametrize("at_once", [None, 257 * 2], ids=["at once", "in chunks"])
def test_of_answers_alone_the_log_has_the_mean(at_once: int | None) -> None:
    """Both what is minimised and what is logged are means over the answer tokens."""
    step, at, _ = view(with_replay=False)
    hidden, targets = step.current._hidden, step.current._targets
    projection = Projection(exact_backbone(), hidden, None, targets, at_once)
    is_answer = torch.tensor([False, False, False, True, True])
    step = Step({"a": at}, projection, None)
    fit, _, values = terms_of(step, [], Weights(answers_alone=True), is_answer)
    by_hand = F.cross_entropy(exact_backbone().logits(hidden)[3:], targets[3:])
    assert_same(fit, by_hand, at)
    assert values["sft"].item() == pytest.approx(by_hand.item())
