"""Sequential OSRM: merged LoRA whose new A avoids the mean inputs of past tasks.

Source: app:osrm.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from holdfast.allocation.base import Allocation, Closing, Opening, State, Workspace
from holdfast.core import config as core_config
from holdfast.core.seeding import generator


class SequentialOSRM(Allocation):
    """Its state: for every map the stacked mean inputs H of past tasks, [t - 1, d_in]."""

    class Config(core_config.Config):
        sequences: int = Field(64, ge=1)  # N_H
        basis: Literal["isotropic", "lapack"] = "isotropic"

    after_task = "merge"

    def begin(self, state: State, workspace: Workspace, opening: Opening) -> State:
        """Kaiming factors, with A rotated into the directions of least feature energy.

        Source: eq. app-osrm-init.
        """
        workspace.fresh(opening.seed, opening.task)
        with torch.no_grad():
            for name, layer in workspace.layers.items() if state else ():
                source = None
                if self.config.basis == "isotropic":
                    source = generator(opening.seed, "osrm", opening.task, name)
                directions = quiet_directions(state[name], len(layer.lora_A), source)
                row_norm = torch.linalg.vector_norm(layer.lora_A, dim=1).mean()  # kappa
                layer.lora_A.copy_(row_norm * directions)
        return state

    def end(self, state: State, closing: Closing) -> State:
        """Stack this task's mean inputs.  Source: eq. app-osrm-feature, eq. app-osrm-stack."""
        means = closing.mean_inputs(self.config.sequences)
        return {
            name: torch.cat([state[name], mean[None]]) if name in state else mean[None]
            for name, mean in means.items()
        }

    def retire(self, state: State, workspace: Workspace) -> State:
        workspace.fold()
        return state

    def unpack(self, tensors: Mapping[str, Tensor]) -> State:
        return dict(tensors)


def quiet_directions(features: Tensor, count: int, source: torch.Generator | None) -> Tensor:
    """Orthonormal directions in which the features have the least energy: [count, d_in].

    features: H, [tasks, d_in]. With ``source``, and if at least ``count`` directions are orthogonal
    to H, an orthonormal set of these is drawn isotropically, by thin QR factorisations: any such
    set belongs to the smallest singular values. Otherwise the result is the last right singular
    vectors of a full SVD.
    Source: eq. app-osrm-stack ff. (V_min).
    """
    wide = features.double()
    tasks, width = wide.shape
    if source is None or width - tasks < count:
        last: Tensor = torch.linalg.svd(wide, full_matrices=True).Vh[-count:]
        return last.to(features)
    drawn = torch.randn(width, count, generator=source, dtype=torch.float64).to(wide.device)
    occupied = torch.linalg.qr(wide.t()).Q
    for _ in range(2):  # twice is enough for orthogonality to rounding
        drawn -= occupied @ (occupied.t() @ drawn)
    basis, triangle = torch.linalg.qr(drawn)
    # The set is isotropic if the triangle's diagonal is positive; LAPACK chooses other signs.
    free: Tensor = (basis * torch.ones_like(drawn[0]).copysign(triangle.diagonal())).t()
    return free.to(features)
