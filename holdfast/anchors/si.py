"""Weight anchor: Synaptic Intelligence.

A coordinate is important when it lowered the fit loss along the optimiser's path.
Source: app:si.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from pydantic import Field
from torch import Tensor

from holdfast.anchors.base import (
    Anchor,
    Change,
    Needs,
    State,
    Step,
    TaskEnd,
    TaskStart,
    Tree,
    quadratic_penalty,
    unpacked,
)
from holdfast.core import config as core_config


class SynapticIntelligence(Anchor):
    """Its state: from the first boundary on the trees importance, Omega, and reference, theta*.

    During a task also the trees start, theta_{t,0}, and path, omega_t.
    """

    class Config(core_config.Config):
        strength: float = Field(1.0, ge=0)  # lambda_SI
        damping: float = Field(0.1, gt=0)  # xi

    needs = Needs(fit_gradient=True)

    def begin(self, state: State, start: TaskStart) -> State:
        before = {name: tensor.clone() for name, tensor in start.parameters.items()}
        path = {
            name: torch.zeros_like(tensor, dtype=torch.promote_types(tensor.dtype, torch.float32))
            for name, tensor in start.parameters.items()
        }
        return {**state, "start": before, "path": path}

    def loss(self, state: State, step: Step) -> Tensor:
        """eq. app-si-penalty."""
        if "importance" not in state:
            return step.zero()
        return quadratic_penalty(step.parameters, state["importance"], state["reference"])

    def after_step(self, state: State, change: Change) -> State:
        """omega <- omega - g (theta_{k+1} - theta_k).  Source: eq. app-si-path."""
        path = {
            name: omega.addcmul(
                change.fit_gradient[name], change.after[name] - change.before[name], value=-1
            )
            for name, omega in state["path"].items()
        }
        return {**state, "path": path}

    def end(self, state: State, end: TaskEnd) -> State:
        """Omega <- Omega + max(0, omega) / (Delta^2 + xi).  Source: eq. app-si-consolidate."""
        importance: dict[str, Tensor] = {}
        past: Tree = state.get("importance", {})
        for name, omega in state["path"].items():
            # Delta, eq. app-si-displacement
            displacement = end.parameters[name] - state["start"][name]
            gained = omega.clamp(min=0) / (displacement.square() + self.config.damping)
            importance[name] = past[name] + gained if name in past else gained
        reference = {name: tensor.clone() for name, tensor in end.parameters.items()}
        return {"importance": importance, "reference": reference}

    def unpack(self, tensors: Mapping[str, Tensor]) -> State:
        return unpacked(tensors, ("importance", "reference"), ("start", "path"))
