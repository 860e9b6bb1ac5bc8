"""O-LoRA: a new pair of factors for every task, kept apart from the earlier ones.

The frozen pairs act through the dense matrices, to which their product is added in the precision of
merges: the sum of eq. app-olora-forward is exact in float32, and a backbone in bfloat16 computes
with it rounded once. The input sides are remembered for the overlap penalty.
Source: app:olora.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from pydantic import Field
from torch import Tensor

from holdfast.allocation.base import Allocation, Opening
from holdfast.backbone.adapters.workspace import Adapters
from holdfast.core import config as core_config

# Tasks a page: few products, and a new task copies one page at most, not the whole past.
TASKS_A_PAGE = 16


class OLoRA(Allocation):
    """Keeps the input sides A_<t of every map.

    Maps of one input width share pages, [maps, tasks r, d_in], so their overlaps are one product a
    page.
    """

    class Config(core_config.Config):
        overlap: float = Field(0.5, ge=0)  # lambda_perp
        factor_norm: float = Field(0.0, ge=0)  # lambda_2
        project_gradient: bool = False

    fate = "frozen"
    replay_counts_for_path = False

    def __init__(self, config: OLoRA.Config) -> None:
        self.config = config
        self._pages: dict[int, list[Tensor]] = {}  # by d_in; the last one may have room
        self._tasks = 0
        self._bases: dict[str, Tensor] = {}  # orthonormal rows spanning A_<t

    def begin(self, adapters: Adapters, opening: Opening) -> None:
        adapters.fresh(opening.seed, opening.task)
        self._bases = {}
        if self.config.project_gradient:
            past = self.past(adapters)
            self._bases = {name: _row_basis(rows) for name, rows in past.items()}

    def penalty(self, adapters: Adapters) -> Tensor | None:
        """lambda_perp R_perp + lambda_2 R_2.  Source: eq. app-olora-orth, eq. app-olora-l2."""
        terms = []
        if self.config.overlap:
            for width in self._pages:
                current = _downs(adapters, width).transpose(1, 2)
                for past in self._filled(width):
                    terms.append(self.config.overlap * torch.bmm(past, current).abs().sum())
        if self.config.factor_norm:
            for layer in adapters.layers.values():
                # At B = 0 the norm has no gradient; torch takes the subgradient 0.
                norms = torch.linalg.vector_norm(layer.down) + torch.linalg.vector_norm(layer.up)
                terms.append(self.config.factor_norm * norms)
        return torch.stack(terms).sum() if terms else None

    def adjust_gradient(self, adapters: Adapters) -> None:
        """With ``project_gradient``: remove A_t's gradient in the row space of A_<t."""
        for name, basis in self._bases.items():
            gradient = adapters.layers[name].down.grad
            assert gradient is not None
            gradient -= (gradient @ basis.t()) @ basis

    def retire(self, adapters: Adapters) -> None:
        """Freeze the pair.  Source: eq. app-olora-concat, eq. app-olora-sum."""
        for width in dict.fromkeys(layer.down.shape[1] for layer in adapters.layers.values()):
            rows = _downs(adapters, width).detach()
            pages = self._pages.setdefault(width, [])
            maps, rank, _ = rows.shape
            place = self._tasks % TASKS_A_PAGE * rank
            if place == 0:
                pages.append(rows.new_empty(maps, TASKS_A_PAGE * rank, width))
            pages[-1][:, place : place + rank] = rows
        self._tasks += 1
        adapters.fold()

    def past(self, adapters: Adapters) -> dict[str, Tensor]:
        """The stacked input sides A_<t of every map, [(t-1) r, d_in]; empty before the first."""
        found: dict[str, Tensor] = {}
        for width in self._pages:
            whole = torch.cat(list(self._filled(width)), dim=1)
            found |= zip(_reading(adapters, width), whole, strict=True)
        return found

    def _filled(self, width: int) -> Iterator[Tensor]:
        """The filled part of every page."""
        left = self._tasks
        for page in self._pages[width]:
            yield page[:, : left * (page.shape[1] // TASKS_A_PAGE)]
            left -= TASKS_A_PAGE

    def state(self) -> dict[str, Tensor]:
        """Empty: the frozen factors are the tasks' own files."""
        return {}


def _reading(adapters: Adapters, width: int) -> list[str]:
    """The maps of this input width."""
    return [name for name, layer in adapters.layers.items() if layer.down.shape[1] == width]


def _downs(adapters: Adapters, width: int) -> Tensor:
    """The input sides of these maps: [maps, r, width]."""
    return torch.stack([adapters.layers[name].down for name in _reading(adapters, width)])


def _row_basis(rows: Tensor) -> Tensor:
    """Orthonormal rows that span the rows of ``rows``: [k, d_in]."""
    _, singular, right = torch.linalg.svd(rows.double(), full_matrices=False)
    kept = singular > singular[0] * max(rows.shape) * torch.finfo(torch.float64).eps
    basis: Tensor = right[kept]
    return basis.to(rows.dtype)
