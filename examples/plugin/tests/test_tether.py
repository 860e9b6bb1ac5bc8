import torch
from my_holdfast.tether import Tether

from holdfast import RunConfig
from holdfast.anchors import StepView, TaskEnd


def view(parameters):
    # This anchor looks at the coordinates alone, so no minibatch is needed.
    return StepView(parameters=parameters, current=None, replay=None)


def after_one_task(parameters):
    anchor = Tether(Tether.Config())
    anchor.end(TaskEnd(task=1, parameters=parameters, sequences=8, sequence_gradient=None))
    return anchor


def test_it_is_exactly_zero_without_a_past():
    assert Tether(Tether.Config()).loss(view(torch.ones(3))) == 0


def test_it_is_the_formula_and_pulls_back():
    anchor = after_one_task(torch.tensor([1.0, 2.0]))
    moved = torch.tensor([1.5, 2.0], requires_grad=True)
    loss = anchor.loss(view(moved))
    loss.backward()
    assert loss.item() == 0.25
    assert moved.grad.tolist() == [1.0, 0.0]


def test_its_reference_does_not_follow_the_training():
    parameters = torch.zeros(2)
    anchor = after_one_task(parameters)
    parameters += 1
    assert anchor.loss(view(parameters)) == 2


def test_a_reloaded_anchor_is_the_same():
    anchor = after_one_task(torch.tensor([1.0, 2.0]))
    again = Tether(anchor.config)
    again.load(anchor.state())
    there = torch.tensor([3.0, -1.0])
    assert again.loss(view(there)) == anchor.loss(view(there)) != 0


def test_a_method_can_name_it():
    config = RunConfig.of({"method": "tether_merge", "plugins": {"tether": {"strength": 0.1}}})
    (anchor,) = config.anchors()
    assert isinstance(anchor, Tether)
    assert anchor.strength == 0.1
