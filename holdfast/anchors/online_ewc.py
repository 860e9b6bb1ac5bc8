"""Weight anchor: online EWC.

A coordinate is important when the trained model's loss on single sequences is sensitive to it.
Source: app:online-ewc.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from pydantic import Field
from torch import Tensor

from holdfast.anchors.base import Anchor, State, Step, TaskEnd, quadratic_penalty, unpacked
from holdfast.core import config as core_config
from holdfast.core.processes import all_reduce_, rank_indices


class OnlineEWC(Anchor):
    """Its state, from the first boundary on: two trees and a scalar.

    fisher: F~, the running Fisher information; reference: theta*; scale: the first task's mean F^.
    """

    class Config(core_config.Config):
        strength: float = Field(1000.0, ge=0)  # lambda_EWC
        decay: float = Field(1.0, ge=0, le=1)  # gamma
        sequences: int = Field(1000, ge=1)  # N_F
        normalise: bool = True  # scale to the first task's mean Fisher information

    def loss(self, state: State, step: Step) -> Tensor:
        """eq. app-online-ewc-penalty."""
        if not state:
            return step.zero()
        return quadratic_penalty(step.parameters, state["fisher"], state["reference"])

    def end(self, state: State, end: TaskEnd) -> State:
        """F~ <- gamma F~ + F^.

        Source: eq. app-fisher, app-fisher-normalize, app-online-ewc-update.
        """
        used = min(end.sequences, self.config.sequences)  # M_t
        fisher = {
            name: torch.zeros_like(tensor, dtype=torch.promote_types(tensor.dtype, torch.float32))
            for name, tensor in end.parameters.items()
        }
        for index in rank_indices(used):
            for name, gradient in end.sequence_gradient(index).items():
                fisher[name] += gradient.square()
        for tensor in fisher.values():
            all_reduce_(tensor)
            tensor /= used
        mean = torch.cat([tensor.flatten() for tensor in fisher.values()]).mean()
        scale = state.get("scale", mean)
        past = state.get("fisher", {})
        for name, tensor in fisher.items():
            if self.config.normalise and float(mean) > 0:
                tensor *= scale / mean
            if past:
                fisher[name] = self.config.decay * past[name] + tensor
        reference = {name: tensor.clone() for name, tensor in end.parameters.items()}
        return {"fisher": fisher, "reference": reference, "scale": scale}

    def unpack(self, tensors: Mapping[str, Tensor]) -> State:
        return unpacked(tensors, ("fisher", "reference", "scale"), single=("scale",))
