"""O-LoRA: a new pair of factors for every task, whose A is kept from overlapping earlier ones.

The products of frozen pairs are added to the dense matrices in the precision of merges: the sum of
eq. app-olora-forward is exact in float32, and a backbone in bfloat16 computes with it rounded once.
The matrices A of the frozen pairs are remembered for the overlap penalty.
Source: app:olora.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from pydantic import Field
from torch import Tensor

from holdfast.allocation.base import Allocation, Opening, State, Workspace
from holdfast.core import config as core_config


class OLoRA(Allocation):
    """Its state: for every map ``past MAP``, the earlier tasks' A_<t, stacked: [(t-1) r, d_in].

    During a task with ``project_gradient`` also ``basis MAP``, orthonormal rows of the same span.
    """

    class Config(core_config.Config):
        overlap: float = Field(0.5, ge=0)  # lambda_perp
        factor_norm: float = Field(0.0, ge=0)  # lambda_2
        project_gradient: bool = False

    after_task = "freeze"
    replay_counts_for_path = False

    def begin(self, state: State, workspace: Workspace, opening: Opening) -> State:
        workspace.fresh(opening.seed, opening.task)
        if not self.config.project_gradient:
            return state
        return dict(state) | {
            f"basis {name}": _row_basis(state[f"past {name}"])
            for name in workspace.layers
            if f"past {name}" in state
        }

    def penalty(self, state: State, workspace: Workspace) -> Tensor | None:
        """lambda_perp R_perp + lambda_2 R_2.  Source: eq. app-olora-orth, eq. app-olora-l2."""
        terms = []
        for name, layer in workspace.layers.items():
            if self.config.overlap and f"past {name}" in state:
                overlap = (state[f"past {name}"] @ layer.lora_A.t()).abs().sum()
                terms.append(self.config.overlap * overlap)
            if self.config.factor_norm:
                # At B = 0 the norm has no gradient; torch takes the subgradient 0.
                norm_A, norm_B = map(torch.linalg.vector_norm, (layer.lora_A, layer.lora_B))
                terms.append(self.config.factor_norm * (norm_A + norm_B))
        return torch.stack(terms).sum() if terms else None

    def adjust_gradient(self, state: State, workspace: Workspace) -> None:
        """With ``project_gradient``: remove A_t's gradient in the row space of A_<t."""
        for name, layer in workspace.layers.items():
            gradient, basis = layer.lora_A.grad, state.get(f"basis {name}")
            if gradient is not None and basis is not None:  # none where no token passed
                gradient -= (gradient @ basis.t()) @ basis

    def retire(self, state: State, workspace: Workspace) -> State:
        """Freeze the pair.  Source: eq. app-olora-concat, eq. app-olora-sum."""
        past = {}
        for name, layer in workspace.layers.items():
            key, lora_A = f"past {name}", layer.lora_A.detach()
            past[key] = torch.cat([state[key], lora_A]) if key in state else lora_A.clone()
        workspace.fold()
        return past

    def unpack(self, tensors: Mapping[str, Tensor]) -> State:
        unknown = [name for name in tensors if name.partition(" ")[0] not in ("past", "basis")]
        if unknown:
            raise KeyError(f"{unknown[0]} is no part of a state of O-LoRA")
        return dict(tensors)


def _row_basis(rows: Tensor) -> Tensor:
    """Orthonormal rows that span the rows of ``rows``: [k, d_in]."""
    _, singular, directions = torch.linalg.svd(rows.double(), full_matrices=False)
    is_spanned = singular > singular[0] * max(rows.shape) * torch.finfo(torch.float64).eps
    basis: Tensor = directions[is_spanned]
    return basis.to(rows.dtype)
