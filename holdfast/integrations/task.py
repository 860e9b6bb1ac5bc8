"""One task of an Anchored: its sequences, and its state while it is learned."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from holdfast.anchors import Text, Update
from holdfast.anchors.updates import updates_since
from holdfast.core.errors import HoldfastError
from holdfast.core.seeding import generator
from holdfast.integrations.method import shown
from holdfast.integrations.reader import PreviousModel
from holdfast.model.lora import LoraWorkspace

if TYPE_CHECKING:
    from holdfast.integrations.anchored import Anchored

_EXPECTED = (
    "token ids of each sequence are expected: "
    'begin([tokenizer(text)["input_ids"] for text in texts])'
)


@dataclass(frozen=True)
class TaskSequences:
    """ids: token ids of each training sequence, in task order; labels: -100 at untrained tokens."""

    ids: list[list[int]]
    labels: list[list[int]]

    @classmethod
    def of(
        cls, ids: Iterable[Sequence[int]], labels: Iterable[Sequence[int]] | None = None
    ) -> TaskSequences:
        """Convert any sequences of integers.

        Raises HoldfastError for none, a short one, labels that do not fit, or anything else.
        """
        read = _rows(ids, "sequence")
        targets = read if labels is None else _rows(labels, "row of labels")
        if not read:
            raise HoldfastError("the task has no sequences; an anchor needs at least one")
        for number, (sequence, row) in enumerate(zip(read, targets, strict=False), start=1):
            if len(sequence) < 2 or len(sequence) != len(row):
                raise HoldfastError(
                    f"sequence {number} of the task has {len(sequence)} tokens and {len(row)} "
                    "labels; it needs two tokens at least, and a label for each"
                )
        if len(read) != len(targets):
            raise HoldfastError(f"{len(read)} sequences have labels for {len(targets)}")
        return cls(read, targets)

    @cached_property
    def fingerprint(self) -> str:
        """A digest of all tokens and labels."""
        text = repr((self.ids, self.labels)).encode()
        return hashlib.sha256(text).hexdigest()

    def batch(self, index: int, device: torch.device) -> dict[str, Tensor]:
        """One sequence as a collated batch."""
        rows = {"input_ids": self.ids[index], "labels": self.labels[index]}
        return {name: torch.tensor([row], device=device) for name, row in rows.items()}


def _rows(given: Any, what: str) -> list[list[int]]:
    """Convert to rows of integers; HoldfastError if that fails. what: a row's name in the error."""
    if not isinstance(given, Iterable):
        raise HoldfastError(f"the task is {shown(given)}; {_EXPECTED}")
    rows = []
    for number, row in enumerate(given, start=1):
        try:
            if isinstance(row, str | bytes | Mapping):
                raise TypeError
            rows.append([int(token) for token in row])
        except (TypeError, ValueError):
            raise HoldfastError(
                f"{what} {number} of the task is {shown(row)}; {_EXPECTED}"
            ) from None
    return rows


class Task:
    """A task that was begun.

    number: 1-based; start: the coordinates before its first step; replay: samples of the previous
    model; fingerprint: of its sequences; drawn, read: minibatches of replay and of general text so
    far; text: general text that an anchor holds; fit_gradient, before: the fit gradient and the
    coordinates before the current step; sequences: None after a reload, until they are given again.
    """

    def __init__(
        self,
        number: int,
        start: Mapping[str, Tensor],
        replay: Sequence[Sequence[int]],
        fingerprint: str,
        drawn: int = 0,
        read: int = 0,
    ) -> None:
        self.number, self.start, self.drawn, self.read = number, dict(start), drawn, read
        self.text: Text | None = None
        self.replay = [list(sequence) for sequence in replay]
        self.fingerprint = fingerprint
        self.sequences: TaskSequences | None = None
        self.fit_gradient: dict[str, Tensor] = {}
        self.before: dict[str, Tensor] | None = None
        self.stepped = False  # whether a step was seen
        self.adjusted = False  # whether the rule has seen the gradient of the step
        self._previous: PreviousModel | None = None
        self._replay_states: list[Tensor] | None = None
        self._updates: Callable[[], dict[str, Update]] | None = None

    def go_on(self, sequences: TaskSequences) -> None:
        """Set the sequences, at first or after a reload; HoldfastError if they are other ones."""
        if sequences.fingerprint != self.fingerprint:
            raise HoldfastError(
                f"the loaded state is in the middle of task {self.number}, which was begun with "
                "other sequences; give the same ones, or load a state between two tasks"
            )
        self.sequences = sequences

    def forget_step(self) -> None:
        """Forget a step that was begun and then interrupted."""
        self.fit_gradient, self.before = {}, None

    def forget_discarded(self, parameters: Mapping[str, Tensor]) -> None:
        """Forget minibatches whose gradients the loop has discarded: no factor has a gradient."""
        if self.fit_gradient and not any(
            factor.grad is not None and bool(factor.grad.any()) for factor in parameters.values()
        ):
            self.fit_gradient = {}

    def add_gradient(self, gradient: Mapping[str, Tensor]) -> None:
        """Add a minibatch's fit gradient to the step's; called in the backward pass."""
        for name, part in gradient.items():
            before = self.fit_gradient.get(name)
            self.fit_gradient[name] = part if before is None else before + part

    def step_gradient(self) -> dict[str, Tensor]:
        """The fit gradient of the step that was made; HoldfastError if none was computed."""
        if not self.fit_gradient:
            raise HoldfastError(
                "si saw a step without a gradient; call backward() on what loss() returned"
            )
        self.stepped = True
        return self.fit_gradient

    def ended(self) -> TaskSequences:
        """The sequences; HoldfastError if there were backward passes but no step was seen."""
        if self.fit_gradient and not self.stepped:
            raise HoldfastError(
                "si saw no step of this task; put optimizer.step() into `with anchored.step():`"
            )
        assert self.sequences is not None
        return self.sequences

    def previous(self, anchored: Anchored) -> PreviousModel:
        """The model at the start of the task."""
        if self._previous is None:
            self._previous = PreviousModel(anchored.reader, anchored.workspace, self.start)
        return self._previous

    def replay_states(self, anchored: Anchored) -> list[Tensor]:
        """The previous model's states on its part of each replay sequence; computed once."""
        if self._replay_states is None:
            with anchored.workspace.at(self.start):
                states = anchored.reader.states_of(self.replay, len(anchored.begin_with))
            self._replay_states = [rows.cpu() for rows in states]
        return self._replay_states

    def next_replay(self, seed: int, size: int) -> list[int]:
        """The next minibatch of the samples. Source: alg. replay."""
        self.drawn += 1
        return self._minibatch("replay order", len(self.replay), self.drawn - 1, seed, size)

    def next_text(self, seed: int, size: int) -> list[int]:
        """The next minibatch of the general text."""
        assert self.text is not None
        count = len(self.text.sequences)
        self.read += 1
        return self._minibatch("general order", count, self.read - 1, seed, size)

    def _minibatch(self, purpose: str, count: int, number: int, seed: int, size: int) -> list[int]:
        """Minibatch ``number``, from 0, of an order that is reshuffled whenever it is exhausted."""
        around, place = divmod(number, -(-count // size))
        order = torch.randperm(count, generator=generator(seed, purpose, self.number, around))
        return order[place * size : (place + 1) * size].tolist()

    def updates(self, workspace: LoraWorkspace) -> dict[str, Update]:
        """The change of every map since the task began."""
        if self._updates is None:
            self._updates = updates_since(self.start, workspace)
        return self._updates()


def is_accumulating() -> bool:
    """Whether accelerate's optimiser makes no step now, as on most minibatches of an accumulation.

    Accelerate's state is global to the process; PEFT imports accelerate.
    """
    accelerate = sys.modules.get("accelerate.state")
    return accelerate is not None and not accelerate.GradientState().sync_gradients
