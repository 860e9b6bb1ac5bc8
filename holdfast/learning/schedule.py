"""The optimiser of one task: AdamW with a linear warm-up, then a constant rate."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from holdfast.learning.config import Optimisation

# AdamW's running means of the gradient and of its square, each of the size of the parameters.
_MOMENTS = ("exp_avg", "exp_avg_sq")


def warmup_steps(steps: int, share: float) -> int:
    """Warm-up steps among a task's ``steps``: ``max(1, floor(share * steps))``."""
    # The small term undoes rounding, so that 0.05 of 100 steps is 5 and never 4.
    return max(1, int(share * steps + 1e-9))


class TaskOptimizer:
    """A new AdamW on the flat parameters [P]; step k of the first W has rate ``lr * k / W``.

    rate: of the latest step.
    """

    def __init__(
        self,
        parameters: nn.Parameter,
        config: Optimisation,
        steps: int,
        *,
        offload: bool = False,
    ) -> None:
        """offload: keep the moments of parameters on a GPU in host memory between steps."""
        self._offload = offload and parameters.is_cuda
        self._device = parameters.device
        self._resting: dict[str, Tensor] = {}
        self._config = config
        self._warmup = warmup_steps(steps, config.warmup)
        self._taken = 0
        self.rate = 0.0
        self._adamw = torch.optim.AdamW(
            [parameters], lr=config.lr, weight_decay=config.weight_decay, fused=True
        )

    def step(self) -> None:
        """Update the parameters by their ``grad``."""
        self._taken += 1
        self.rate = self._config.lr * min(1.0, self._taken / self._warmup)
        for group in self._adamw.param_groups:
            group["lr"] = self.rate
        if not self._offload:
            self._adamw.step()
            return
        # Copies to and from pinned memory keep the order of the device's work: nothing waits.
        for state in self._adamw.state.values():
            for name, host in self._resting.items():
                state[name] = host.to(self._device, non_blocking=True)
        self._adamw.step()
        for state in self._adamw.state.values():
            for name in _MOMENTS:
                moment = state[name]
                if name not in self._resting:
                    self._resting[name] = torch.empty(
                        moment.shape, dtype=moment.dtype, pin_memory=True
                    )
                state[name] = self._resting[name].copy_(moment, non_blocking=True)
