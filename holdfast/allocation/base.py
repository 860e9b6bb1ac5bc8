"""What an allocation rule is: which factors a task trains and what becomes of them.

Every rule works on the same adapted maps, through
:class:`~holdfast.backbone.adapters.workspace.Adapters`.
It opens the workspace of a task without changing the model's function, may add a penalty, and
retires the trained factors at the boundary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torch import Tensor

from holdfast.backbone.adapters.workspace import Adapters
from holdfast.core.config import Config

MeanInputs = Callable[[int], dict[str, Tensor]]


@dataclass(frozen=True)
class Opening:
    """The boundary before a task. task: 1-based, the one to be learned; seed: the trajectory's."""

    task: int
    seed: int


@dataclass(frozen=True)
class Closing:
    """The boundary after a task, the factors still in the coordinates that learned it.

    task: 1-based; mean_inputs(limit): over the first ``limit`` sequences in task order, the mean
    input [d_in] of every adapted map, padded positions included (eq. app-osrm-feature).
    """

    task: int
    mean_inputs: MeanInputs


class Allocation(ABC):
    """A rule for low-rank updates. Implementations are final.

    Config: its settings. A method that a rule does not override does nothing and
    keeps no state.

    fate: where trained factors go, which decides what a reload reads: they stay in the workspace
    (``kept``: the last task's factors), are added to the dense matrices (``folded``: every task's
    since the last copy of these), or are added and remembered (``frozen``: every task's).
    """

    Config: ClassVar[type[Config]] = Config
    fate: Literal["kept", "folded", "frozen"]
    replay_counts_for_path: bool = True  # does SI record the replay loss? app:composition

    def __init__(self, config: Any) -> None:
        """config: of the class ``Config``."""
        self.config = config

    @abstractmethod
    def begin(self, adapters: Adapters, opening: Opening) -> None:
        """Open the workspace of a task; the model's function does not change."""

    @abstractmethod
    def retire(self, adapters: Adapters) -> None:
        """Apply ``fate`` to the trained factors; a reload calls it for every past task."""

    def penalty(self, adapters: Adapters) -> Tensor | None:
        """The weighted regularisers of eq. app-objective, a scalar; None when there are none."""
        return None

    def adjust_gradient(self, adapters: Adapters) -> None:  # noqa: B027
        """Change the complete gradient in place, before it is clipped."""

    def end(self, closing: Closing) -> None:  # noqa: B027
        """Observe the trained model, before its factors change their coordinates."""

    def state(self) -> dict[str, Tensor]:
        """The state beyond the factors themselves, as named tensors."""
        return {}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Load what :meth:`state` returned."""
        assert not state
