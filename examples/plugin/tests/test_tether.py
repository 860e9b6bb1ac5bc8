import torch
from my_holdfast.tether import Tether

from holdfast import RunConfig
from holdfast.anchors import Step, TaskEnd


def step(parameters):
    # This anchor looks at the coordinates alone, so no minibatch is needed.
    return Step(parameters={"layer.lora_A": parameters}, current=None, replay=None)


def after_one_task(parameters):
    anchor = Tether(Tether.Config())
    end = TaskEnd(1, {"layer.lora_A": parameters}, sequences=8, sequence_gradient=None)
    return anchor, anchor.end({}, end)


def test_it_is_exactly_zero_without_a_past():
    assert Tether(Tether.Config()).loss({}, step(torch.ones(3))) == 0


def test_it_is_the_formula_and_pulls_back():
    anchor, state = after_one_task(torch.tensor([1.0, 2.0]))
    moved = torch.tensor([1.5, 2.0], requires_grad=True)
    loss = anchor.loss(state, step(moved))
    loss.backward()
    assert loss.item() == 0.25
    assert moved.grad.tolist() == [1.0, 0.0]


def test_its_reference_does_not_follow_the_training():
    parameters = torch.zeros(2)
    anchor, state = after_one_task(parameters)
    parameters += 1
    assert anchor.loss(state, step(parameters)) == 2


def test_its_state_goes_through_a_file():
    anchor, state = after_one_task(torch.tensor([1.0, 2.0]))
    again = anchor.unpack(anchor.pack(state))
    there = step(torch.tensor([3.0, -1.0]))
    assert anchor.loss(again, there) == anchor.loss(state, there) != 0


def test_a_method_can_name_it():
    config = RunConfig.of({"method": "tether_merge", "plugins": {"tether": {"strength": 0.1}}})
    (anchor,) = config.anchors()
    assert isinstance(anchor, Tether)
    assert anchor.strength({}) == 0.1
