"""Shared LoRA: one pair of factors for all tasks.

Source: eq. app-shared.
"""

from __future__ import annotations

from holdfast.allocation.base import Allocation, Opening
from holdfast.backbone.adapters.workspace import Adapters


class Shared(Allocation):
    """The cumulative change of every matrix has at most rank r."""

    fate = "kept"

    def begin(self, adapters: Adapters, opening: Opening) -> None:
        if opening.task == 1:
            adapters.fresh(opening.seed, opening.task)

    def retire(self, adapters: Adapters) -> None:
        """The factors stay; the next task continues to train them."""
