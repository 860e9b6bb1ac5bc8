"""The optimiser of one task: AdamW with a linear warm-up, then a constant rate."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from holdfast.learning.config import Optimisation


def warmup_steps(steps: int, share: float) -> int:
    """Warm-up steps among a task's ``steps``: ``max(1, floor(share * steps))``."""
    # The small term undoes rounding, so that 0.05 of 100 steps is 5 and never 4.
    return max(1, int(share * steps + 1e-9))


class TaskOptimizer:
    """A new AdamW on the factors; step k of the first W has rate ``lr * k / W``.

    rate: of the latest step.
    """

    def __init__(self, parameters: Iterable[Tensor], config: Optimisation, steps: int) -> None:
        """steps: of the whole task, of which the first share warms up."""
        self._config = config
        self._warmup = warmup_steps(steps, config.warmup)
        self._taken = 0
        self.rate = 0.0
        self._adamw = torch.optim.AdamW(
            list(parameters), lr=config.lr, weight_decay=config.weight_decay, fused=True
        )

    def step(self) -> None:
        """Update the parameters by their ``grad``."""
        self._taken += 1
        self.rate = self._config.lr * min(1.0, self._taken / self._warmup)
        for group in self._adamw.param_groups:
            group["lr"] = self.rate
        self._adamw.step()
