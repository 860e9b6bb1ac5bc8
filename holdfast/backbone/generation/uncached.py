"""Steps without a cache: each passes the whole row.

For models whose cache fails with rows of different lengths, or when rows are dropped or repeated.
Slow, and correct for every causal model.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from holdfast.backbone.model import Backbone
from holdfast.backbone.sequences import pad_right


class UncachedSteps:
    """Rows of tokens that grow by one token a call; a ``Steps``."""

    def __init__(self, backbone: Backbone) -> None:
        self._backbone = backbone
        self._rows: list[list[int]] = []

    def __call__(self, ids: Tensor) -> Tensor:
        before = self._rows or [[] for _ in ids]
        self._rows = [[*row, one] for row, one in zip(before, ids.tolist(), strict=True)]
        # Attention is causal: padding on the right does not change a row's last token.
        padded, own = pad_right(self._rows, self._backbone.pad_token, ids.device)
        states = self._backbone.hidden(padded)
        rows = torch.arange(len(ids), device=ids.device)
        return self._backbone.logits(states[rows, own.sum(dim=1) - 1])

    def begin(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        self._rows = [list(prompt[:-1]) for prompt in prompts]
        return torch.tensor([prompt[-1] for prompt in prompts], device=self._backbone.device)

    def keep(self, order: Tensor) -> None:
        self._rows = [self._rows[row] for row in order.tolist()]

    def rows_for(self, running: int, rows: int) -> int:
        return running
