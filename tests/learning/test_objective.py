"""How the terms of one minibatch are composed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from holdfast.anchors.base import State, Step
from holdfast.backbone.projection import Projection
from holdfast.learning.objective import Weights, minibatch_terms
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
    terms = minibatch_terms(
        step, anchors(), STATES, Weights(1 - W, 1 - W, W), replay_counts_for_path=counts
    )
    current, replay, penalty = (1 - W) * sft, W * (2 * at).sum(), 5 * at.square().sum()
    assert_same(terms.fit, current + replay if counts else current, at)
    assert_same(terms.rest, penalty if counts else penalty + replay, at)
    assert terms.values["sft"].item() == pytest.approx(sft.item())
    assert terms.values["replay"].item() == pytest.approx((2 * at).sum().item())
    assert terms.values["penalty"].item() == pytest.approx(at.square().sum().item())
    assert not any(value.requires_grad for value in terms.values.values())


@pytest.mark.parametrize("counts", [True, False])
def test_without_one_the_current_loss_has_its_whole_weight(counts: bool) -> None:
    step, at, sft = view(with_replay=False)
    terms = minibatch_terms(step, anchors(), STATES, Weights(), replay_counts_for_path=counts)
    assert_same(terms.fit, sft, at)
    assert_same(terms.rest, 5 * at.square().sum(), at)


def test_nothing_else_to_minimise() -> None:
    step, at, sft = view(with_replay=False)
    terms = minibatch_terms(step, anchors()[2:], STATES, Weights(), replay_counts_for_path=True)
    assert terms.rest is None
    assert_same(terms.fit, sft, at)
    assert terms.values["nothing yet"].item() == 0.0


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
    weights = Weights(0.1, 0.7, is_answer=is_answer)
    terms = minibatch_terms(step, [], {}, weights, replay_counts_for_path=True)
    each = F.cross_entropy(logits, targets, reduction="none")
    by_hand = (0.1 * each[:3].sum() + 0.7 * each[3:].sum()) / 5
    assert_same(terms.fit, by_hand, at)
    assert terms.values["sft"].item() == pytest.approx(each.mean().item())
    assert terms.values["acquired"].item() == 0.5


@pytest.mark.parametrize("at_once", [None, 257 * 2], ids=["at once", "in chunks"])
def test_of_answers_alone_the_log_has_the_mean(at_once: int | None) -> None:
    """Both what is minimised and what is logged are means over the answer tokens."""
    step, at, _ = view(with_replay=False)
    hidden, targets = step.current._hidden, step.current._targets
    projection = Projection(exact_backbone(), hidden, None, targets, at_once)
    is_answer = torch.tensor([False, False, False, True, True])
    weights = Weights(is_answer=is_answer, answers_alone=True)
    step = Step({"a": at}, projection, None)
    terms = minibatch_terms(step, [], {}, weights, replay_counts_for_path=True)
    by_hand = F.cross_entropy(exact_backbone().logits(hidden)[3:], targets[3:])
    assert_same(terms.fit, by_hand, at)
    assert terms.values["sft"].item() == pytest.approx(by_hand.item())
