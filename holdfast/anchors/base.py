"""What an anchor is: state in, state out, and a loss over small frozen views.

An anchor never sees the learner. It declares what it needs, has hooks for the start of a task, a
step and the end of a task, and owns its state. The boundary of
tasks (alg. app-task-boundary) decides when each of these happens.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch import Tensor

from holdfast.backbone.curvature import Curvature
from holdfast.backbone.projection import Projection
from holdfast.core.config import Config


@dataclass(frozen=True)
class Needs:
    """What the learner must supply to an anchor.

    replay: minibatches sampled from the previous model; curvature: Kronecker factors of every
    adapted map on such samples; updates: the change of every map as factors; teacher: the
    previous model's states on the current task's sequences; fit_gradient: the unclipped gradient
    of the fit term.
    Of reference points, which keep examples: stored: replay minibatches hold so many stored
    items of earlier tasks; joint: every task is trained together with all earlier ones.
    """

    replay: bool = False
    curvature: bool = False
    updates: bool = False
    teacher: bool = False
    fit_gradient: bool = False
    stored: int = 0
    joint: bool = False


@dataclass(frozen=True)
class TaskStart:
    """task: 1-based; parameters: [P], the trainable coordinates before the first step.

    items: of the task; past_items: learned before it; curvature: S and G of every adapted map, by
    name, on the samples before this task, None when there are none or no anchor needs them;
    general: how many sequences of general text were sampled, before this task or the first; rest:
    keeps a tensor that no step of the task needs, in host memory if that is asked for.
    """

    task: int
    parameters: Tensor
    items: int = 1
    past_items: int = 0
    curvature: Curvature | None = None
    general: int = 0
    rest: Callable[[Tensor], Tensor] = lambda tensor: tensor


@dataclass(frozen=True)
class Update:
    """The change of one map since the task began, as factors: ``dW = scale * left @ right``.

    left: [d_out, k], B or [B, -B_0]; right: [k, d_in], A or [A; A_0]; scale: rho. Where B_0 = 0,
    k is the rank, otherwise twice as much. Both are differentiable.
    """

    left: Tensor
    right: Tensor
    scale: float


@dataclass(frozen=True)
class StepView:
    """The arguments of an anchor's loss in one step.

    parameters: [P], differentiable; current: the predicted tokens of the current minibatch, with
    the previous model's states when a past exists; replay: those of the replay minibatch, None
    when there is none; updates: of every adapted map, by name, where an anchor needs them.
    """

    parameters: Tensor
    current: Projection
    replay: Projection | None
    updates: Mapping[str, Update] = field(default_factory=dict)


@dataclass(frozen=True)
class StepChange:
    """One optimiser step: the unclipped fit gradient and the coordinates around it, each [P]."""

    fit_gradient: Tensor
    before: Tensor
    after: Tensor


@dataclass(frozen=True)
class TaskEnd:
    """The trained model, before the allocation rule changes its coordinates.

    task: 1-based; parameters: [P]; sequences: number of training sequences N_t;
    sequence_gradient: the gradient [P] of the causal loss of one of them, in evaluation mode,
    by its index in task order; curvature: S and G of every adapted map on these sequences.
    """

    task: int
    parameters: Tensor
    sequences: int
    sequence_gradient: Callable[[int], Tensor]
    curvature: Callable[[], Curvature] = dict


class Anchor(ABC):
    """One thing that an update should preserve. Implementations are final.

    Config: its settings; needs: what the learner supplies. A method that an anchor does not
    override does nothing and keeps no state.
    """

    Config: ClassVar[type[Config]] = Config
    needs: Needs = Needs()

    def __init__(self, config: Any) -> None:
        """config: of the class ``Config``."""
        self.config = config

    @property
    def strength(self) -> float:
        """The coefficient of the loss in eq. app-objective: ``config.strength``."""
        strength: float = self.config.strength
        return strength

    @property
    def in_fit(self) -> bool:
        """Whether the loss is L_D of eq. app-fit, weighted by w, not a term with a strength."""
        return self.needs.replay

    @abstractmethod
    def loss(self, step: StepView) -> Tensor:
        """The anchor's term, a scalar, unweighted; exactly 0 until a past exists."""

    def begin(self, start: TaskStart) -> None:  # noqa: B027
        """A task is about to be learned."""

    def after_step(self, change: StepChange) -> None:  # noqa: B027
        """The optimiser has made a step."""

    def end(self, end: TaskEnd) -> None:  # noqa: B027
        """The task is learned; consolidate before the factors change their coordinates."""

    def state(self) -> dict[str, Tensor]:
        """The state for the next task, as named tensors; may be empty."""
        return {}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Load what :meth:`state` returned; KeyError on names that do not match."""
        check_names(state)


def check_names(state: Mapping[str, Tensor], *names: str) -> None:
    """Raise KeyError unless a state to load is empty or holds exactly ``names``."""
    if state and state.keys() != set(names):
        raise KeyError(f"a state of {sorted(state)} instead of {sorted(names)}")
