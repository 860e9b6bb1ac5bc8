"""What an allocation rule is: which factors a task trains and what becomes of them.

A rule holds settings; what it remembers is an explicit state. It works on any :class:`Workspace`:
it opens that of a task without changing the model's function, may add a penalty, and retires the
trained factors at the boundary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

from torch import Tensor

from holdfast.core.config import Config

MeanInputs = Callable[[int], dict[str, Tensor]]

#: What a rule remembers: tensors by names of its own, never changed in place.
State = Mapping[str, Tensor]


class Factors(Protocol):
    """One adapted map: ``W + scale lora_B lora_A``; lora_A: [r, d_in]; lora_B: [d_out, r]."""

    @property
    def lora_A(self) -> Tensor:
        """[r, d_in], trainable."""

    @property
    def lora_B(self) -> Tensor:
        """[d_out, r], trainable."""


class Workspace(Protocol):
    """The factors that a task trains, on a frozen model."""

    @property
    def layers(self) -> Mapping[str, Factors]:
        """The adapted maps, by name."""

    def fresh(self, seed: int, task: int) -> None:
        """Draw A by the Kaiming rule, named by (seed, task, map); set B = 0."""

    def fold(self) -> None:
        """Add ``scale lora_B lora_A`` to every dense matrix and set B = 0."""


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
    """A rule for low-rank updates.

    Config: its settings. A function that a rule does not override returns the state that it was
    given. The first state is empty.

    after_task: where trained factors go, which decides what a reload reads: they stay in the
    workspace (``keep``: the last task's factors), are added to the dense matrices (``merge``: every
    task's since the last copy of these), or are added and remembered (``freeze``: every task's).
    """

    Config: ClassVar[type[Config]] = Config
    after_task: Literal["keep", "merge", "freeze"]
    replay_counts_for_path: bool = True  # does SI record the replay loss? app:composition

    def __init__(self, config: Any) -> None:
        """config: of the class ``Config``."""
        self.config = config

    @abstractmethod
    def begin(self, state: State, workspace: Workspace, opening: Opening) -> State:
        """Open the workspace of a task; the model's function does not change."""

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
        """The state that a file holds; KeyError on names that are none of this rule's."""
        if tensors:
            raise KeyError(f"a state of {sorted(tensors)} for a rule that keeps none")
        return {}
