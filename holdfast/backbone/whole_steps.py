"""Steps that keep nothing: each is a pass over all that a row has said.

For models whose caches cannot be relied on when rows of unlike lengths stand together, leave or
repeat. Slow, and right for whatever is causal.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from holdfast.backbone.load import Backbone
from holdfast.backbone.sequences import pad_right


class WholeSteps:
    """Rows of tokens that grow by one token a call; see :class:`holdfast.backbone.steps.Steps`."""

    def __init__(self, backbone: Backbone) -> None:
        self._backbone = backbone
        self._said: list[list[int]] = []

    def __call__(self, ids: Tensor) -> Tensor:
        before = self._said or [[] for _ in ids]
        self._said = [[*row, one] for row, one in zip(before, ids.tolist(), strict=True)]
        # What follows a row's last token changes nothing at that token.
        padded, own = pad_right(self._said, self._backbone.pad_token, ids.device)
        states = self._backbone.hidden(padded)
        rows = torch.arange(len(ids), device=ids.device)
        return self._backbone.logits(states[rows, own.sum(dim=1) - 1])

    def begin(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        self._said = [list(prompt[:-1]) for prompt in prompts]
        return torch.tensor([prompt[-1] for prompt in prompts], device=self._backbone.device)

    def keep(self, order: Tensor) -> None:
        self._said = [self._said[row] for row in order.tolist()]

    def rows_for(self, running: int, rows: int) -> int:
        return running
