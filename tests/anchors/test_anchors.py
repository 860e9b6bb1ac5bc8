"""Every anchor's loss and consolidation against the reference, in float64."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from holdfast.anchors.base import Change, State, Step, TaskEnd, TaskStart
from holdfast.anchors.online_ewc import OnlineEWC
from holdfast.anchors.replay import GenerativeReplay
from holdfast.anchors.sd import SelfDistillation
from holdfast.anchors.si import SynapticIntelligence
from holdfast.backbone.projection import Projection
from holdfast.backbone.sequences import collate, pad_right
from holdfast.core.errors import HoldfastError
from reference import online_ewc, synaptic_intelligence
from reference.distillation import function_loss
from reference.replay import soft_replay_loss
from reference.sequences import sft_loss
from tests.tiny import exact_backbone, normal, short_sequences

P = 40
CPU = torch.device("cpu")


def split(flat: Tensor) -> dict[str, Tensor]:
    """As the reference names coordinates: two tensors."""
    return {"a": flat[:25].view(5, 5), "b": flat[25:]}


def joined(named: dict[str, Tensor]) -> Tensor:
    return torch.cat([named["a"].flatten(), named["b"]])


def step_at(parameters: Tensor) -> Step:
    none: Any = None
    return Step(split(parameters), none, none)


def never(index: int) -> dict[str, Tensor]:
    raise AssertionError("Synaptic Intelligence asks for no gradient at the boundary")


def assert_penalty(anchor: Any, state: State, theirs: Any) -> None:
    """Value and gradient at a random place."""
    ours_at = normal(P, seed=9).requires_grad_()
    theirs_at = ours_at.detach().clone().requires_grad_()
    ours, expected = anchor.loss(state, step_at(ours_at)), theirs(split(theirs_at))
    torch.testing.assert_close(ours, expected, rtol=1e-13, atol=0)
    ours.backward()
    expected.backward()
    torch.testing.assert_close(ours_at.grad, theirs_at.grad, rtol=1e-13, atol=0)
    assert ours > 0


def test_synaptic_intelligence() -> None:
    """Three tasks of random steps: path, consolidation and penalty."""
    anchor = SynapticIntelligence(SynapticIntelligence.Config(damping=0.03))
    state: State = {}
    importance = split(torch.zeros(P, dtype=torch.float64))
    reference: dict[str, Tensor] = {}
    for task in (1, 2, 3):
        if task == 1:
            assert anchor.loss(state, step_at(normal(P, seed=9))).item() == 0.0
        else:
            assert_penalty(
                anchor, state, partial(synaptic_intelligence.penalty, importance, reference)
            )
        now = normal(P, seed=task)
        start, path = now, split(torch.zeros(P, dtype=torch.float64))
        state = anchor.begin(state, TaskStart(task, split(now)))
        for step in range(4):
            gradient = normal(P, seed=100 * task + step)
            after = now - 0.1 * gradient + 0.1 * normal(P, seed=100 * task + step + 50)
            state = anchor.after_step(state, Change(split(gradient), split(now), split(after)))
            path = synaptic_intelligence.extend_path(
                path, split(gradient), split(now), split(after)
            )
            now = after
        state = anchor.end(state, TaskEnd(task, split(now), 0, never))
        importance, reference = synaptic_intelligence.consolidate(
            importance, path, split(start), split(now), 0.03
        )
        torch.testing.assert_close(
            joined(state["importance"]), joined(importance), rtol=1e-12, atol=1e-15
        )
        assert torch.equal(joined(state["reference"]), joined(reference))
        # Some coordinates moved against the fit; they got nothing and lost nothing.
        assert (joined(path) < 0).any()
        assert (joined(state["importance"]) >= 0).all()


def test_the_start_is_a_snapshot() -> None:
    """The loop hands over views of parameters that the optimiser then changes in place."""
    anchor = SynapticIntelligence(SynapticIntelligence.Config())
    live = torch.zeros(3, dtype=torch.float64)
    state = anchor.begin({}, TaskStart(1, {"a": live}))
    before = live.clone()
    live += 1.0
    gradient = -torch.ones(3, dtype=torch.float64)
    state = anchor.after_step(state, Change({"a": gradient}, {"a": before}, {"a": live}))
    state = anchor.end(state, TaskEnd(1, {"a": live}, 0, never))
    live += 5.0
    expected = torch.full((3,), 1 / 1.1, dtype=torch.float64)
    assert torch.equal(state["importance"]["a"], expected)
    assert torch.equal(state["reference"]["a"], torch.ones(3, dtype=torch.float64))


def test_a_function_leaves_the_state_that_it_was_given() -> None:
    """A caller may keep a state, and go on from it again."""
    anchor = SynapticIntelligence(SynapticIntelligence.Config())
    state = anchor.begin({}, TaskStart(1, split(normal(P, seed=1))))
    before = {key: tensor.clone() for key, tensor in anchor.pack(state).items()}
    steps = [split(normal(P, seed=seed)) for seed in (2, 3, 4)]
    once = anchor.after_step(state, Change(*steps))
    assert all(torch.equal(before[key], tensor) for key, tensor in anchor.pack(state).items())
    again = anchor.after_step(state, Change(*steps))
    assert all(
        torch.equal(anchor.pack(once)[key], tensor) for key, tensor in anchor.pack(again).items()
    )
    assert (joined(once["path"]) != joined(state["path"])).all()


def test_a_state_in_the_middle_of_a_task_goes_through_a_file() -> None:
    anchor = SynapticIntelligence(SynapticIntelligence.Config())
    state = anchor.begin({}, TaskStart(1, split(normal(P, seed=1))))
    packed = anchor.pack(state)
    assert packed.keys() == {"start a", "start b", "path a", "path b"}
    restored = anchor.unpack(packed)
    assert all(
        torch.equal(tensor, restored["start"][name]) for name, tensor in state["start"].items()
    )
    with pytest.raises(KeyError):
        anchor.unpack({"start a": packed["start a"]})
    with pytest.raises(KeyError):
        anchor.unpack({**packed, "importance a": packed["start a"]})
    with pytest.raises(KeyError):
        anchor.unpack({key: packed[key] for key in ("start a", "start b", "path a")})


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize("decay", [1.0, 0.7, 0.0])
def test_online_ewc(normalise: bool, decay: float) -> None:
    """Three tasks whose gradients differ a thousandfold; five sequences, at most four used."""
    settings = OnlineEWC.Config(decay=decay, normalise=normalise, sequences=4)
    anchor = OnlineEWC(settings)
    state: State = {}
    running = split(torch.zeros(P, dtype=torch.float64))
    first = reference = None
    for task, size in ((1, 1.0), (2, 30.0), (3, 0.03)):
        if first is None:
            assert anchor.loss(state, step_at(normal(P, seed=9))).item() == 0.0
        else:
            assert_penalty(anchor, state, partial(online_ewc.penalty, running, reference))
        gradients = [size * normal(P, seed=10 * task + n) for n in range(5)]
        asked: list[int] = []

        def gradient(
            index: int, given: list[Tensor] = gradients, asked: list[int] = asked
        ) -> dict[str, Tensor]:
            asked.append(index)
            return split(given[index])

        end = normal(P, seed=task)
        state = anchor.end(state, TaskEnd(task, split(end), 5, gradient))
        assert asked == [0, 1, 2, 3]
        fisher = split(torch.stack(gradients[:4]).square().mean(0))
        first = online_ewc.mean_fisher(fisher) if first is None else first
        if normalise:
            fisher = online_ewc.normalise(fisher, first)
            assert joined(fisher).mean() == pytest.approx(float(first), rel=1e-12)
        running = online_ewc.update(running, fisher, decay)
        reference = split(end)
        torch.testing.assert_close(joined(state["fisher"]), joined(running), rtol=1e-12, atol=0)
        assert torch.equal(joined(state["reference"]), end)
        assert state["scale"] == pytest.approx(float(first), rel=1e-12)


def test_a_gradient_of_zero_is_no_division_by_zero() -> None:
    anchor, state = OnlineEWC(OnlineEWC.Config()), {}
    zero = {"a": torch.zeros(3, dtype=torch.float64)}
    for task in (1, 2):
        state = anchor.end(state, TaskEnd(task, zero, 1, lambda index: zero))
    assert torch.equal(state["fisher"]["a"], zero["a"])


class Student:
    """Random student and teacher states of a ragged minibatch, and the whole padded logits."""

    def __init__(self) -> None:
        self.backbone = exact_backbone()
        sequences = short_sequences(4)
        self.batch = collate(sequences, CPU)
        self.ids, self.mask = pad_right(sequences, self.backbone.pad_token, CPU)
        shape = (*self.ids.shape, 16)
        self.teacher = normal(*shape, seed=1)
        self.hidden = normal(*shape, seed=2).requires_grad_()
        assert not self.mask.all()

    def step(self, replay: bool, teacher: bool = True) -> Step:
        projection = Projection(
            self.backbone,
            self.batch.packed(self.hidden[:, :-1]),
            self.batch.packed(self.teacher[:, :-1]) if teacher else None,
            self.batch.targets,
        )
        none: Any = None
        at = {"a": torch.zeros(1, dtype=torch.float64)}
        return Step(at, none if replay else projection, projection if replay else None)

    def logits(self) -> tuple[Tensor, Tensor]:
        return self.backbone.logits(self.teacher), self.backbone.logits(self.hidden)

    def assert_same(self, ours: Tensor, theirs: Tensor) -> None:
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=0)
        (first,) = torch.autograd.grad(ours, self.hidden)
        (second,) = torch.autograd.grad(theirs, self.hidden)
        torch.testing.assert_close(first, second, rtol=1e-10, atol=1e-14)
        assert first.abs().max() > 1e-4


def test_self_distillation() -> None:
    """eq. app-function-loss, padding out."""
    student = Student()
    anchor = SelfDistillation(SelfDistillation.Config(temperature=3.0))
    assert anchor.loss({}, student.step(replay=False, teacher=False)).item() == 0.0
    theirs = function_loss(*student.logits(), student.mask, 3.0)
    student.assert_same(anchor.loss({}, student.step(replay=False)), theirs)


@pytest.mark.parametrize("loss", ["soft", "cross_entropy"])
def test_generative_replay(loss: Any) -> None:
    """eq. app-replay-loss: every continuation token, the seed and padding out."""
    student = Student()
    anchor = GenerativeReplay(GenerativeReplay.Config(temperature=1.5, loss=loss))
    none: Any = None
    nothing = Step({"a": torch.zeros(1)}, none, None)
    assert anchor.loss({}, nothing).item() == 0.0
    teacher, logits = student.logits()
    if loss == "soft":
        theirs = soft_replay_loss(teacher, logits, student.mask, 1.5)
    else:  # the paper does not use it (app:hyperparameters)
        theirs = sft_loss(logits, student.ids, student.mask)
    student.assert_same(anchor.loss({}, student.step(replay=True)), theirs)


@pytest.mark.parametrize(("state", "key"), [({"n": 3}, "n"), ({"seen": {"a": 0.5}}, "seen a")])
def test_a_state_of_something_else_is_refused_in_a_line(state: State, key: str) -> None:
    anchor = SelfDistillation(SelfDistillation.Config())
    with pytest.raises(HoldfastError, match=f"SelfDistillation: '{key}' of its state is no tensor"):
        anchor.pack(state)
