"""O-LoRA: a new pair of factors for every task, kept apart from the earlier ones.

The frozen pairs act through the dense matrices (their product is folded in, which represents
eq. app-olora-forward exactly); their input sides are remembered for the overlap penalty.
Source: app:olora.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from pydantic import Field
from torch import Tensor

from holdfast.allocation.base import Allocation, Closing, Opening
from holdfast.backbone.adapters import Adapters
from holdfast.core import config as core_config


class OLoRA(Allocation):
    """frozen: for every map the stacked input sides A_<t, [(t-1) r, d_in].

    Those of maps with inputs of one width are views of one tensor, [maps, (t-1) r, d_in], so that
    their overlaps are one product.
    """

    class Config(core_config.Config):
        overlap: float = Field(0.5, ge=0)  # lambda_perp
        factor_norm: float = Field(0.0, ge=0)  # lambda_2
        project_gradient: bool = False

    fate = "frozen"
    replay_counts_for_path = False

    def __init__(self, config: OLoRA.Config) -> None:
        self.config = config
        self.frozen: dict[str, Tensor] = {}
        self._stacks: dict[int, Tensor] = {}  # by d_in
        self._bases: dict[str, Tensor] = {}  # orthonormal rows spanning A_<t

    def begin(self, adapters: Adapters, opening: Opening) -> None:
        adapters.fresh(opening.seed, opening.task)
        self._bases = {}
        if self.config.project_gradient:
            self._bases = {name: _row_basis(rows) for name, rows in self.frozen.items()}

    def penalty(self, adapters: Adapters) -> Tensor | None:
        """lambda_perp R_perp + lambda_2 R_2.  Source: eq. app-olora-orth, eq. app-olora-l2."""
        terms = []
        if self.config.overlap:
            for width, stack in self._stacks.items():
                current = torch.stack(_downs(adapters, width))  # [maps, r, d_in]
                overlaps = torch.bmm(stack, current.transpose(1, 2))
                terms.append(self.config.overlap * overlaps.abs().sum())
        if self.config.factor_norm:
            for layer in adapters.layers.values():
                # At B = 0 the norm has no gradient; torch takes the subgradient 0.
                norms = torch.linalg.vector_norm(layer.down) + torch.linalg.vector_norm(layer.up)
                terms.append(self.config.factor_norm * norms)
        return torch.stack(terms).sum() if terms else None

    def adjust_gradient(self, adapters: Adapters) -> None:
        """With ``project_gradient``: remove from A_t's gradient what lies in the rows of A_<t."""
        for name, basis in self._bases.items():
            gradient = adapters.layers[name].down.grad
            assert gradient is not None
            gradient -= (gradient @ basis.t()) @ basis

    def end(self, closing: Closing) -> None:
        """Nothing to observe."""

    def retire(self, adapters: Adapters) -> None:
        """Freeze the pair.  Source: eq. app-olora-concat, eq. app-olora-sum."""
        for width in dict.fromkeys(layer.down.shape[1] for layer in adapters.layers.values()):
            rows = torch.stack(_downs(adapters, width)).detach()
            past = self._stacks.get(width)
            self._stacks[width] = rows if past is None else torch.cat([past, rows], dim=1)
            names = [n for n, layer in adapters.layers.items() if layer.down.shape[1] == width]
            self.frozen |= zip(names, self._stacks[width], strict=True)
        adapters.fold()

    def state(self) -> dict[str, Tensor]:
        """Empty: the frozen factors are the tasks' own files."""
        return {}

    def load(self, state: Mapping[str, Tensor]) -> None:
        assert not state


def _downs(adapters: Adapters, width: int) -> list[Tensor]:
    """The input sides [r, width] of all maps that read so wide a tensor."""
    return [layer.down for layer in adapters.layers.values() if layer.down.shape[1] == width]


def _row_basis(rows: Tensor) -> Tensor:
    """Orthonormal rows that span the rows of ``rows``: [k, d_in]."""
    _, singular, right = torch.linalg.svd(rows.double(), full_matrices=False)
    kept = singular > singular[0] * max(rows.shape) * torch.finfo(torch.float64).eps
    basis: Tensor = right[kept]
    return basis.to(rows.dtype)
