"""Shared LoRA: one pair of factors, trained on over all tasks.

Source: eq. app-shared.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from holdfast.allocation.base import Allocation, Closing, Opening
from holdfast.backbone.adapters.workspace import Adapters
from holdfast.core import config as core_config


class Shared(Allocation):
    """The cumulative change of every matrix has at most rank r."""

    class Config(core_config.Config):
        """No settings of its own."""

    fate = "kept"

    def __init__(self, config: Shared.Config) -> None:
        self.config = config

    def begin(self, adapters: Adapters, opening: Opening) -> None:
        if opening.task == 1:
            adapters.fresh(opening.seed, opening.task)

    def penalty(self, adapters: Adapters) -> None:
        return None

    def adjust_gradient(self, adapters: Adapters) -> None:
        """Nothing to change."""

    def end(self, closing: Closing) -> None:
        """Nothing to observe."""

    def retire(self, adapters: Adapters) -> None:
        """The factors stay: the next task trains them on."""

    def state(self) -> dict[str, Tensor]:
        return {}

    def load(self, state: Mapping[str, Tensor]) -> None:
        assert not state
