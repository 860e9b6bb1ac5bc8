"""Merged LoRA: every task's factors are added to the dense matrices; the next gets new ones.

Source: eq. app-merge-forward, eq. app-merge.
"""

from __future__ import annotations

from holdfast.allocation.base import Allocation, Opening
from holdfast.backbone.adapters.workspace import Adapters


class Merged(Allocation):
    """After t tasks the committed change of a matrix can reach rank t r."""

    fate = "folded"

    def begin(self, adapters: Adapters, opening: Opening) -> None:
        adapters.fresh(opening.seed, opening.task)

    def retire(self, adapters: Adapters) -> None:
        adapters.fold()
