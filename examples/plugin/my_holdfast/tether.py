"""Weight anchor: stay near the coordinates at which the last task ended."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from holdfast.anchors import Anchor, Config, State, Step, TaskEnd


class Tether(Anchor):
    """``sum_i (theta_i - theta*_i)^2``; its state is theta*, from the end of the first task on."""

    class Config(Config):
        strength: float = Field(0.01, ge=0)  # the coefficient in the objective

    def loss(self, state: State, step: Step) -> Tensor:
        if not state:
            return step.zero()
        squares = [
            (tensor - state["reference"][name]).square().sum()
            for name, tensor in step.parameters.items()
        ]
        return torch.stack(squares).sum()

    def end(self, state: State, end: TaskEnd) -> State:
        # The tensors are trained on in place: without a copy the reference would follow them.
        return {"reference": {name: tensor.clone() for name, tensor in end.parameters.items()}}
