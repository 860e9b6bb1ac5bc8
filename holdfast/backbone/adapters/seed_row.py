"""The replay token's input row as trainable coordinates: an option that the paper leaves off."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class SeedRowEmbedding(nn.Module):
    """An embedding in which one token's row is a parameter of its own.

    row: [d], trained in place of the table's row of ``token``; the table, and with it the output
    head's row, stays frozen.
    """

    def __init__(self, base: Any, token: int, row: nn.Parameter) -> None:
        super().__init__()
        self.base = base
        self.token = token
        self.row = row

    @property
    def weight(self) -> Tensor:
        """The frozen table, [vocabulary, d]."""
        table: Tensor = self.base.weight
        return table

    def forward(self, ids: Tensor) -> Tensor:
        embedded: Tensor = self.base(ids)
        return torch.where((ids == self.token)[..., None], self.row.to(embedded.dtype), embedded)
