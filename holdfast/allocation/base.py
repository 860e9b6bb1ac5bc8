"""The interface of allocation rules: which factors a task trains and what becomes of them.

A rule holds settings; what it remembers is an explicit state. On any :class:`Workspace` it prepares
a task's factors without changing the model's function, may add a penalty, and retires the trained
factors at the boundary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

from torch import Tensor

from holdfast.core.config import Config
from holdfast.model.lora import LoraFactors

MeanInputs = Callable[[int], dict[str, Tensor]]

#: What a rule remembers: tensors by names that it chooses, never changed in place.
State = Mapping[str, Tensor]


class Workspace(Protocol):
    """The factors that a task trains, on a frozen model."""

    @property
    def layers(self) -> Mapping[str, LoraFactors]:
        """The adapted maps, by name: their factors are ``lora_A`` and ``lora_B``."""

    def fresh(self, seed: int, task: int) -> None:
        """Draw A by the Kaiming rule, named by (seed, task, map); set B = 0."""

    def fold(self) -> None:
        """Add ``scale lora_B lora_A`` to every dense matrix and set B = 0."""


@dataclass(frozen=True)
class Opening:
    """The boundary before a task. task: its number, 1-based; seed: the trajectory's."""

    task: int
    seed: int


@dataclass(frozen=True)
class Closing:
    """The boundary after a task, before its factors change their coordinates.

    task: 1-based; mean_inputs: called with a number, gives every adapted map's mean input [d_in]
    over that many first sequences, padded positions included (eq. app-osrm-feature).
    """

    task: int
    mean_inputs: MeanInputs


class Allocation(ABC):
    """A rule for low-rank updates.

    The first state is empty, and a function that is not overridden returns its state unchanged.
    Config: the class of its settings.

    after_task: where trained factors go, and so the factors that a reload reads. ``keep``: they
    stay in the workspace; it reads the last task's. ``merge``: they are added to the dense
    matrices; it reads every task's since the last copy of these. ``freeze``: they are added and
    remembered; it reads every task's.
    """

    Config: ClassVar[type[Config]] = Config
    after_task: Literal["keep", "merge", "freeze"]
    replay_counts_for_path: bool = True  # does SI record the replay loss? app:composition

    def __init__(self, config: Any) -> None:
        """config: an instance of ``Config``."""
        self.config = config

    @abstractmethod
    def begin(self, state: State, workspace: Workspace, opening: Opening) -> State:
        """Prepare the factors of a task without changing the model's function."""

    @abstractmethod
    def retire(self, state: State, workspace: Workspace) -> State:
        """Apply ``after_task`` to the trained factors; a reload calls it for every past task."""

    def penalty(self, state: State, workspace: Workspace) -> Tensor | None:
        """The weighted regularisers of eq. app-objective, a scalar; None when there are none."""
        return None

    def adjust_gradient(self, state: State, workspace: Workspace) -> None:  # noqa: B027
        """Change the complete gradient in place, before it is clipped."""

    def end(self, state: State, closing: Closing) -> State:
        """Observe the trained model, before its factors change their coordinates."""
        return state

    def unpack(self, tensors: Mapping[str, Tensor]) -> State:
        """The state from a file's tensors; KeyError for names that are not this rule's."""
        if tensors:
            raise KeyError(f"a state of {sorted(tensors)} for a rule that keeps none")
        return {}
