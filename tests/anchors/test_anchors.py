"""What weight anchors keep; their numbers over whole runs are in tests/conformance."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from holdfast.anchors.base import Change, State, TaskEnd, TaskStart
from holdfast.anchors.online_ewc import OnlineEWC
from holdfast.anchors.sd import SelfDistillation
from holdfast.anchors.si import SynapticIntelligence
from holdfast.core.errors import HoldfastError
from reference import online_ewc
from tests.tiny import normal

P = 40


def split(flat: Tensor) -> dict[str, Tensor]:
    """As the reference names coordinates: two tensors."""
    return {"a": flat[:25].view(5, 5), "b": flat[25:]}


def joined(named: dict[str, Tensor]) -> Tensor:
    return torch.cat([named["a"].flatten(), named["b"]])


def never(index: int) -> dict[str, Tensor]:
    raise AssertionError("Synaptic Intelligence asks for no gradient at the boundary")


def test_the_start_is_a_snapshot() -> None:
    """The loop hands over views of parameters that the optimiser then changes in place.

    The last coordinate moves against the fit: it gets nothing, and loses nothing (eq. app-si-path).
    """
    anchor = SynapticIntelligence(SynapticIntelligence.Config())
    live = torch.zeros(3, dtype=torch.float64)
    state = anchor.begin({}, TaskStart(1, {"a": live}))
    before = live.clone()
    live += 1.0
    gradient = torch.tensor([-1.0, -1.0, 1.0], dtype=torch.float64)
    state = anchor.after_step(state, Change({"a": gradient}, {"a": before}, {"a": live}))
    state = anchor.end(state, TaskEnd(1, {"a": live}, 0, never))
    live += 5.0
    expected = torch.tensor([1 / 1.1, 1 / 1.1, 0.0], dtype=torch.float64)
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
    anchor = OnlineEWC(OnlineEWC.Config(decay=decay, normalise=normalise, sequences=4))
    state: State = {}
    running, first = split(torch.zeros(P, dtype=torch.float64)), None
    for task, size in ((1, 1.0), (2, 30.0), (3, 0.03)):
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
        running = online_ewc.update(running, fisher, decay)
        torch.testing.assert_close(joined(state["fisher"]), joined(running), rtol=1e-12, atol=0)
        assert torch.equal(joined(state["reference"]), end)
        assert state["scale"] == pytest.approx(float(first), rel=1e-12)


def test_a_gradient_of_zero_is_no_division_by_zero() -> None:
    anchor, state = OnlineEWC(OnlineEWC.Config()), {}
    zero = {"a": torch.zeros(3, dtype=torch.float64)}
    for task in (1, 2):
        state = anchor.end(state, TaskEnd(task, zero, 1, lambda index: zero))
    assert torch.equal(state["fisher"]["a"], zero["a"])


@pytest.mark.parametrize(("state", "key"), [({"n": 3}, "n"), ({"seen": {"a": 0.5}}, "seen a")])
def test_a_state_of_something_else_is_refused_in_a_line(state: State, key: str) -> None:
    anchor = SelfDistillation(SelfDistillation.Config())
    with pytest.raises(HoldfastError, match=f"SelfDistillation: '{key}' of its state is no tensor"):
        anchor.pack(state)
