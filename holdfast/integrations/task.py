"""One task of an Anchored: its sequences, and its state while it is learned."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import index
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from holdfast.anchors import Text, Update
from holdfast.anchors.base import updates_since
from holdfast.core.errors import HoldfastError
from holdfast.core.seeding import generator
from holdfast.integrations.reader import PreviousModel

if TYPE_CHECKING:
    from holdfast.integrations.anchored import Anchored


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
        return hashlib.sha256(repr((self.ids, self.labels)).encode()).hexdigest()


def _rows(given: Iterable[Sequence[int]], what: str) -> list[list[int]]:
    rows: list[list[int]] = []
    try:
        for row in given:
            rows.append([index(token) for token in row])
    except TypeError:
        raise HoldfastError(
            f"{what} {len(rows) + 1} of the task is no list of token ids; call "
            'begin([tokenizer(text)["input_ids"] for text in texts])'
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
        anchored: Anchored,
        number: int,
        start: Mapping[str, Tensor],
        replay: list[list[int]],
        fingerprint: str,
        drawn: int = 0,
        read: int = 0,
    ) -> None:
        self._anchored = anchored
        self.number, self.start, self.drawn, self.read = number, dict(start), drawn, read
        self.text: Text | None = None
        self.replay, self.fingerprint = replay, fingerprint
        self.sequences: TaskSequences | None = None
        self.fit_gradient: dict[str, Tensor] = {}
        self.before: dict[str, Tensor] | None = None
        self.interrupted = False  # whether begin() may be called again, to continue
        self.stepped = False  # whether a step was seen
        self.acted = False  # whether a loss had the anchors' terms
        self.adjusted = False  # whether the rule has seen the gradient of the step

    def go_on(self, sequences: TaskSequences) -> None:
        """Set the sequences, at first or to continue; HoldfastError if they are other ones."""
        if sequences.fingerprint != self.fingerprint:
            way = "load a state between two tasks"
            raise HoldfastError(
                f"task {self.number} was begun with other sequences and is not ended; give the "
                f"same ones, or {way if self.sequences is None else f'call end(), or {way}'}"
            )
        self.sequences, self.interrupted = sequences, False

    def forget_step(self) -> None:
        """Forget a step that was begun and then interrupted."""
        self.fit_gradient, self.before = {}, None

    def forget_discarded(self, parameters: Mapping[str, Tensor]) -> None:
        """Forget minibatches whose gradients the loop has discarded: no factor has a gradient.

        Raises HoldfastError if the factors moved in a step that has not ended.
        """
        if self.before is not None and any(
            not factor.equal(self.before[name]) for name, factor in parameters.items()
        ):
            raise HoldfastError(
                "si needs the gradient at which each step began; put every optimizer.step() into "
                "`with anchored.step():` of its own, and take no optimizer that computes the loss "
                "several times in a step, such as LBFGS"
            )
        if self.fit_gradient and not any(
            factor.grad is not None and bool(factor.grad.any()) for factor in parameters.values()
        ):
            self.fit_gradient = {}

    def add_gradient(self, gradient: Mapping[str, Tensor]) -> None:
        """Add a minibatch's fit gradient to the step's; called in the backward pass."""
        for name, part in gradient.items():
            before = self.fit_gradient.get(name)
            self.fit_gradient[name] = part if before is None else before + part

    def check_anchors_acted(self, factors: Iterable[Tensor]) -> None:
        """Raise HoldfastError if the factors have a gradient, but no loss had the anchors' terms.

        They have none in a step of an optimiser for other parameters.
        """
        if not self.acted and any(factor.grad is not None for factor in factors):
            raise HoldfastError(
                "the step's loss has no anchors in it; compute it with loss(batch) of the Anchored"
            )

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

    @cached_property
    def previous(self) -> PreviousModel:
        """The model at the start of the task."""
        return PreviousModel(self._anchored.reader, self._anchored.workspace, self.start)

    @cached_property
    def replay_states(self) -> list[Tensor]:
        """The previous model's states on its part of each replay sequence."""
        anchored = self._anchored
        with anchored.workspace.at(self.start):
            states = anchored.reader.states_of(self.replay, len(anchored.begin_with))
        return [rows.cpu() for rows in states]

    @cached_property
    def updates(self) -> Callable[[], dict[str, Update]]:
        """Gives the change of every map since the task began."""
        return updates_since(self.start, self._anchored.workspace)

    def next_replay(self) -> list[int]:
        """The next minibatch of the samples. Source: alg. replay."""
        self.drawn += 1
        return self._minibatch("replay order", len(self.replay), self.drawn - 1)

    def next_text(self) -> list[int]:
        """The next minibatch of the general text."""
        assert self.text is not None
        self.read += 1
        return self._minibatch("general order", len(self.text.sequences), self.read - 1)

    def _minibatch(self, purpose: str, count: int, number: int) -> list[int]:
        """Minibatch ``number``, from 0, of an order that is reshuffled whenever it is exhausted."""
        seed, size = self._anchored.seed, self._anchored.batch_size
        around, place = divmod(number, -(-count // size))
        order = torch.randperm(count, generator=generator(seed, purpose, self.number, around))
        return order[place * size : (place + 1) * size].tolist()


def is_accumulating() -> bool:
    """Whether accelerate's optimiser makes no step now, as on most minibatches of an accumulation.

    Accelerate's state is global to the process; PEFT imports accelerate.
    """
    accelerate = sys.modules.get("accelerate.state")
    return accelerate is not None and not accelerate.GradientState().sync_gradients
