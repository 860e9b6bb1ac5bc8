"""Merged LoRA: every task's factors are folded into the dense matrices, then start anew.

Source: eq. app-merge-forward, eq. app-merge.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from holdfast.allocation.base import Allocation, Closing, Opening
from holdfast.backbone.adapters.workspace import Adapters
from holdfast.core import config as core_config


class Merged(Allocation):
    """After t tasks the committed change of a matrix can reach rank t r."""

    class Config(core_config.Config):
        """No settings of its own; the precision of the merge is ``lora.merge_precision``."""

    fate = "folded"

    def __init__(self, config: Merged.Config) -> None:
        self.config = config

    def begin(self, adapters: Adapters, opening: Opening) -> None:
        adapters.fresh(opening.seed, opening.task)

    def penalty(self, adapters: Adapters) -> None:
        return None

    def adjust_gradient(self, adapters: Adapters) -> None:
        """Nothing to change."""

    def end(self, closing: Closing) -> None:
        """Nothing to observe."""

    def retire(self, adapters: Adapters) -> None:
        adapters.fold()

    def state(self) -> dict[str, Tensor]:
        return {}

    def load(self, state: Mapping[str, Tensor]) -> None:
        assert not state
