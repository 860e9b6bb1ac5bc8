"""The interface of anchors: settings, and pure functions of an explicit state.

An anchor sees neither loop nor model. Every training loop (this package's, a Trainer, a script)
calls the same four functions in the order of alg. app-task-boundary: ``begin`` before a task,
``loss`` in every step, ``after_step`` if an anchor needs ``fit_gradient``, ``end`` after the task.
Each gets the latest state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from holdfast.core.config import Config
from holdfast.core.errors import HoldfastError
from holdfast.model.kronecker import Curvature, Positions
from holdfast.model.lora import LoraWorkspace
from holdfast.model.projection import Projection
from holdfast.model.sequences import TokenStates

#: A tensor for each trainable coordinate, by its name. Low-rank factors are ``MODULE.lora_A``
#: [r, d_in] and ``MODULE.lora_B`` [d_out, r].
Tree = Mapping[str, Tensor]

#: What an anchor remembers, by names that it chooses. Nothing in it is changed in place.
State = Mapping[str, Any]


@dataclass(frozen=True)
class Needs:
    """What the loop must supply to an anchor.

    replay: minibatches sampled from the previous model; curvature: Kronecker factors of every
    adapted map on such samples and on general text, before every task; prior_curvature: on general
    text before the first task; positions: the input x of every adapted map and the gradient g in
    its output, at positions of general text; updates: the change of every map as factors; teacher:
    the previous model's states on the current task's sequences; general: minibatches of general
    text from the first task on, with the untouched model's states; fit_gradient: the unclipped
    gradient of the fit term, and calls of ``after_step``.

    Only for reference points, which keep examples: stored: draw replay minibatches from this many
    stored items of earlier tasks; joint: train every task together with all earlier ones.
    """

    replay: bool = False
    curvature: bool = False
    prior_curvature: bool = False
    positions: bool = False
    updates: bool = False
    teacher: bool = False
    general: bool = False
    fit_gradient: bool = False
    stored: int = 0
    joint: bool = False


@dataclass(frozen=True)
class Text:
    """Sequences that a model wrote, as token ids, with its last hidden states on them.

    minibatches_per_step: of them that a step of a run gets; in one's own loop it is 1.
    """

    sequences: list[list[int]]
    states: TokenStates
    minibatches_per_step: int = 1


@dataclass(frozen=True)
class TaskStart:
    """What an anchor knows before the first step of a task.

    task: 1-based; parameters: the trainable coordinates; items: number of the task's items;
    past_items: number of items learned before; curvature: S and G of every adapted map, by name,
    on samples of the previous model, None if there are none or no anchor needs them; general: the
    number of general texts asked for (``sampling.general``); positions: called with a number,
    gives x and g of every map at that many positions of the general text sampled before this task,
    None if there is none; text: called with a number, gives that many general texts of the
    untouched model, None after the first task.
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

    lora_B: [d_out, k], B or [B, -B_0]; lora_A: [k, d_in], A or [A; A_0]; scale: rho. If B_0 = 0, k
    is the rank, otherwise twice the rank. Both factors are differentiable.
    """

    lora_B: Tensor
    lora_A: Tensor
    scale: float


@dataclass(frozen=True)
class Step:
    """The arguments of an anchor's loss in one step.

    parameters: the trainable coordinates, differentiable; current: the predicted tokens of the
    current minibatch, with the previous model's states if an anchor needs them and a past exists;
    replay: the predicted tokens of the replay minibatch, None if there is none; updates: the change
    of every adapted map, by name, if an anchor needs it; general: the predicted tokens of the
    general minibatch, with the untouched model's states, None if there is none.
    """

    parameters: Tree
    current: Projection
    replay: Projection | None
    updates: Mapping[str, Update] = field(default_factory=dict)
    general: Projection | None = None

    def zero(self) -> Tensor:
        """A scalar 0: the loss of an anchor without a past."""
        return next(iter(self.parameters.values())).new_zeros(())


@dataclass(frozen=True)
class Change:
    """One optimiser step: the unclipped fit gradient, the coordinates before it and after it."""

    fit_gradient: Tree
    before: Tree
    after: Tree


@dataclass(frozen=True)
class TaskEnd:
    """The trained model, before the allocation rule changes its coordinates.

    task: 1-based; parameters: the trained coordinates; sequences: number of training sequences N_t;
    sequence_gradient: called with an index in task order, gives the gradient of that sequence's
    causal loss in evaluation mode; curvature: called, gives S and G of every adapted map on these
    sequences; updates: the change of every map, if an anchor needs it; positions: called with a
    number, gives x and g of every map at that many positions of these sequences.
    """

    task: int
    parameters: Tree
    sequences: int
    sequence_gradient: Callable[[int], Tree]
    curvature: Callable[[], Curvature] = dict
    updates: Mapping[str, Update] = field(default_factory=dict)
    positions: Callable[[int], Positions] | None = None


def updates_since(start: Tree, workspace: LoraWorkspace) -> Callable[[], dict[str, Update]]:
    """Return a function for every map's change since a workspace's coordinates were ``start``."""
    # A fresh B is zero: then the change needs no second pair of factors.
    moved = any(bool(factor.any()) for name, factor in start.items() if name.endswith(".lora_B"))

    def updates() -> dict[str, Update]:
        changes = {}
        for name, layer in workspace.layers.items():
            lora_A, lora_B = layer.lora_A, layer.lora_B
            if moved:
                lora_B = torch.cat([lora_B, -start[f"{name}.lora_B"]], dim=1)
                lora_A = torch.cat([lora_A, start[f"{name}.lora_A"]])
            changes[name] = Update(lora_B, lora_A, layer.scale)
        return changes

    return updates


def quadratic_penalty(parameters: Tree, importance: Tree, reference: Tree) -> Tensor:
    """``sum_i importance_i (parameters_i - reference_i)^2``, a scalar.

    Source: eq. app-weight-anchor-form.
    """
    terms = [
        (importance[name] * (tensor - reference[name]).square()).sum()
        for name, tensor in parameters.items()
    ]
    return sum(terms[1:], terms[0])


class Anchor(ABC):
    """One thing that an update should preserve.

    An instance holds only settings; what it learns is in the state that its functions take and
    return. The first state is empty, and a function that is not overridden returns its state
    unchanged. Config: the class of the settings; needs: what the loop must supply.
    """

    Config: ClassVar[type[Config]] = Config
    needs: Needs = Needs()

    def __init__(self, config: Any) -> None:
        """config: an instance of ``Config``."""
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
        """Called before a task's first step."""
        return state

    def text(self, state: State) -> Text | None:
        """General text, of which every step gets a minibatch; None: no such minibatches."""
        return None

    def after_step(self, state: State, change: Change) -> State:
        """Called after every optimiser step if an anchor of the method needs ``fit_gradient``."""
        return state

    def end(self, state: State, end: TaskEnd) -> State:
        """Called after a task's last step, before the allocation rule changes the coordinates."""
        return state

    def pack(self, state: State) -> dict[str, Tensor]:
        """Convert a state to named tensors for a file; a tree's are named ``PART NAME``.

        An anchor whose state holds anything but tensors and trees overrides this pair.
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
        """The inverse of :meth:`pack`; an override may raise KeyError for names that do not fit."""
        return _state_of(tensors)


def unpacked(
    tensors: Mapping[str, Tensor], *groups: Sequence[str], single: Sequence[str] = ()
) -> State:
    """Unpack a state and check its parts.

    groups: names of parts of which a state has all or none; single: the parts that are one tensor;
    all others are trees. Raises KeyError for other parts, or if two trees have different names.
    """
    state = _state_of(tensors)
    whole = {part for group in groups if state.keys() & set(group) for part in group}
    plain = {part for part, value in state.items() if isinstance(value, Tensor)}
    trees = {frozenset(state[part]) for part in state.keys() - plain}
    if state.keys() != whole or plain != whole & set(single) or len(trees) > 1:
        raise KeyError(f"the tensors {sorted(tensors)} are no state of the parts {groups}")
    return state


def _state_of(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Tensors named ``PART`` as they are, those named ``PART NAME`` as trees."""
    state: dict[str, Any] = {}
    for key, tensor in tensors.items():
        part, is_of_tree, name = key.partition(" ")
        if is_of_tree:
            state.setdefault(part, {})[name] = tensor
        else:
            state[part] = tensor
    return state
