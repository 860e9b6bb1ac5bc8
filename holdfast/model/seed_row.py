"""The replay token's input row as a trainable parameter: an option that the paper leaves off."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class SeedRowEmbedding(nn.Module):
    """An embedding in which one token's row is a parameter of its own.

    row: [d], trained in place of the table's row of ``token``; the table stays frozen, and with it
    a tied output head.
    """

    def __init__(self, base: Any, token: int) -> None:
        super().__init__()
        self.base = base
        self.token = token
        row = base.weight[token].detach()
        self.row = nn.Parameter(row.to(torch.promote_types(row.dtype, torch.float32), copy=True))

    @property
    def weight(self) -> Tensor:
        """The frozen table, [vocabulary, d]."""
        table: Tensor = self.base.weight
        return table

    def forward(self, ids: Tensor) -> Tensor:
        embedded: Tensor = self.base(ids)
        row = self.row.to(embedded.dtype)
        scale = getattr(self.base, "embed_scale", 1.0)  # Gemma's tables multiply by it
        row = row * (scale.to(row.dtype) if isinstance(scale, Tensor) else scale)
        return torch.where((ids == self.token)[..., None], row, embedded)


@torch.no_grad()
def set_input_row(model: Any, token: int, row: Tensor) -> None:
    """Overwrite a token's input row; the output head keeps its own, tied or not."""
    head, table = model.get_output_embeddings(), model.get_input_embeddings()
    if head.weight is table.weight:
        head.weight = nn.Parameter(head.weight.detach().clone(), requires_grad=False)
        for config in (model.config, model.config.get_text_config()):
            config.tie_word_embeddings = False
    table.weight[token] = row.to(table.weight.dtype)
