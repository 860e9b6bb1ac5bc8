"""What an anchor is: settings and pure functions of an explicit state.

An anchor sees no loop and no model. Whoever trains, this package's loop, somebody's Trainer or a
bare script, calls the same four functions in the order of alg. app-task-boundary: ``begin`` a task,
a ``loss`` in every step, ``after_step`` where an anchor needs ``fit_gradient``, and ``end`` of the
task. Each gets the state that the one before returned.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch import Tensor

from holdfast.backbone.projection import Projection
from holdfast.backbone.sequences import TokenStates
from holdfast.core.config import Config
from holdfast.core.errors import HoldfastError
from holdfast.model.curvature import Curvature, Positions

#: Trainable coordinates, or a value for each of them, by the names that the loop gives them; of
#: low-rank layers ``MODULE.lora_A`` [r, d_in] and ``MODULE.lora_B`` [d_out, r].
Tree = Mapping[str, Tensor]

#: What an anchor remembers, by names of its own. The trees and tensors in it are never changed in
#: place.
State = Mapping[str, Any]


@dataclass(frozen=True)
class Needs:
    """What the loop must supply to an anchor.

    replay: minibatches sampled from the previous model; curvature: Kronecker factors of every
    adapted map on such samples; positions: x and g of every adapted map at positions of the
    general text; updates: the change of every map as factors; teacher: the
    previous model's states on the current task's sequences; general: minibatches of general text
    from the first task on, with the untouched model's states; fit_gradient: the unclipped gradient
    of the fit term, and calls of ``after_step``.
    Of reference points, which keep examples: stored: replay minibatches hold so many stored
    items of earlier tasks; joint: every task is trained together with all earlier ones.
    """

    replay: bool = False
    curvature: bool = False
    positions: bool = False
    updates: bool = False
    teacher: bool = False
    general: bool = False
    fit_gradient: bool = False
    stored: int = 0
    joint: bool = False


@dataclass(frozen=True)
class Text:
    """Sequences that a model wrote, as token ids, with its last hidden states on them."""

    sequences: list[list[int]]
    states: TokenStates


@dataclass(frozen=True)
class TaskStart:
    """task: 1-based; parameters: the trainable coordinates before the first step.

    items: of the task; past_items: learned before it; curvature: S and G of every adapted map, by
    name, on the samples before this task, None when there are none or no anchor needs them;
    general: how many sequences of general text were sampled, before this task or the first;
    positions: x and g at so many positions of what was sampled of it now, None where nothing was;
    text: so many sequences that the model writes now from random tokens of its vocabulary.
    """

    task: int
    parameters: Tree
    items: int = 1
    past_items: int = 0
    curvature: Curvature | None = None
    general: int = 0
    positions: Callable[[int], Positions] | None = None
    text: Callable[[int], Text] | None = None


@dataclass(frozen=True)
class Update:
    """The change of one map since the task began: ``dW = scale * lora_B @ lora_A``.

    lora_B: [d_out, k], B or [B, -B_0]; lora_A: [k, d_in], A or [A; A_0]; scale: rho. Where B_0 = 0,
    k is the rank, otherwise twice as much. Both are differentiable.
    """

    lora_B: Tensor
    lora_A: Tensor
    scale: float


@dataclass(frozen=True)
class Step:
    """The arguments of an anchor's loss in one step.

    parameters: the trainable coordinates, differentiable; current: the predicted tokens of the
    current minibatch, with the previous model's states when a past exists; replay: those of the
    replay minibatch, None when there is none; updates: of every adapted map, by name, where an
    anchor needs them; general: those of the minibatch of general text, with the untouched model's
    states, None when there is none.
    """

    parameters: Tree
    current: Projection
    replay: Projection | None
    updates: Mapping[str, Update] = field(default_factory=dict)
    general: Projection | None = None

    def zero(self) -> Tensor:
        """The loss of an anchor without a past, a scalar."""
        return next(iter(self.parameters.values())).new_zeros(())


@dataclass(frozen=True)
class Change:
    """One optimiser step: the unclipped fit gradient, and the coordinates around the step."""

    fit_gradient: Tree
    before: Tree
    after: Tree


@dataclass(frozen=True)
class TaskEnd:
    """The trained model, before the allocation rule changes its coordinates.

    task: 1-based; sequences: number of training sequences N_t; sequence_gradient: the gradient of
    the causal loss of one of them, in evaluation mode, by its index in task order; curvature: S
    and G of every adapted map on these sequences; updates: the change of every map, where an
    anchor needs it; positions: x and g at so many positions of these sequences.
    """

    task: int
    parameters: Tree
    sequences: int
    sequence_gradient: Callable[[int], Tree]
    curvature: Callable[[], Curvature] = dict
    updates: Mapping[str, Update] = field(default_factory=dict)
    positions: Callable[[int], Positions] | None = None


class Anchor(ABC):
    """One thing that an update should preserve.

    An instance holds its settings and nothing else; what it learns is the state that its functions
    take and return. Config: its settings; needs: what the loop supplies. A function that an anchor
    does not override returns the state that it was given. The first state is empty.
    """

    Config: ClassVar[type[Config]] = Config
    needs: Needs = Needs()

    def __init__(self, config: Any) -> None:
        """config: of the class ``Config``."""
        self.config = config

    def strength(self, state: State) -> float:
        """The coefficient of the loss in eq. app-objective: ``config.strength``."""
        strength: float = self.config.strength
        return strength

    @property
    def in_fit(self) -> bool:
        """Whether the loss is L_D of eq. app-fit, weighted by w, not a term with a strength."""
        return self.needs.replay

    @abstractmethod
    def loss(self, state: State, step: Step) -> Tensor:
        """The anchor's term, a scalar, unweighted; exactly 0 until a past exists."""

    def begin(self, state: State, start: TaskStart) -> State:
        """A task is about to be learned."""
        return state

    def text(self, state: State) -> Text | None:
        """General text of which every step has a minibatch; None for none."""
        return None

    def after_step(self, state: State, change: Change) -> State:
        """The optimiser has made a step. Called if an anchor of the method needs fit_gradient."""
        return state

    def end(self, state: State, end: TaskEnd) -> State:
        """The task is learned; consolidate before the factors change their coordinates."""
        return state

    def pack(self, state: State) -> dict[str, Tensor]:
        """A state as named tensors for a file; ``PART NAME`` for a tree's.

        A state may hold tensors and trees; an anchor with anything else overrides this pair.
        Raises HoldfastError for anything else.
        """
        packed: dict[str, Tensor] = {}
        for part, value in state.items():
            if isinstance(value, Mapping):
                packed |= {f"{part} {name}": tensor for name, tensor in value.items()}
            else:
                packed[part] = value
        for key, tensor in packed.items():
            if not isinstance(tensor, Tensor):
                raise HoldfastError(
                    f"{type(self).__name__}: {key!r} of its state is no tensor but "
                    f"{type(tensor).__name__}; make it one, or override pack and unpack"
                )
        return packed

    def unpack(self, tensors: Mapping[str, Tensor]) -> State:
        """The inverse of :meth:`pack`; KeyError on names that do not match, if that is checked."""
        state: dict[str, Any] = {}
        for key, tensor in tensors.items():
            part, tree, name = key.partition(" ")
            if tree:
                state.setdefault(part, {})[name] = tensor
            else:
                state[part] = tensor
        return state


def unpacked(
    tensors: Mapping[str, Tensor], *groups: Sequence[str], single: Sequence[str] = ()
) -> State:
    """The state whose packed form these tensors are.

    groups: names of parts of which a state has all or none; single: the parts that are one tensor;
    the others are trees. Raises KeyError on other names, or where two trees differ in theirs.
    """
    state: dict[str, Any] = {}
    for key, tensor in tensors.items():
        part, _, name = key.partition(" ")
        if part in single:
            state[part] = tensor
        else:
            # Older runs have no name for the one tensor that held all factors.
            state.setdefault(part, {})[name or "factors"] = tensor
    whole = {part for group in groups if state.keys() & set(group) for part in group}
    trees = {frozenset(state[part]) for part in state.keys() - set(single)}
    if state.keys() != whole or len(trees) > 1:
        raise KeyError(f"the tensors {sorted(tensors)} are no state of the parts {groups}")
    return state
