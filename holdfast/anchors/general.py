"""Function anchor on general text: the untouched model's distributions on what it writes itself.

Before the first task the model writes sequences from tokens drawn uniformly from its vocabulary.
The sequences and its last hidden states on them are kept, and every step of every task has a
minibatch of them:

    tau^2 mean over tokens of KL(p_0(. | z_<l) || p(. | z_<l)).

The teacher of ``sd`` and ``replay`` is the model before the current task. Here it is the model
before all tasks, so it does not drift; nothing that was taught is preserved.
Holdfast's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate

import torch
from pydantic import Field
from torch import Tensor

from holdfast.anchors.base import Anchor, Needs, State, Step, TaskStart, Text, unpacked
from holdfast.anchors.divergences import DivergenceConfig
from holdfast.core.errors import HoldfastError
from holdfast.model.sequences import TokenStates


class GeneralDistillation(Anchor):
    """The term above.

    Its state: tokens [n] of all sequences, concatenated; lengths [texts]; states [n - texts, d]:
    the untouched model's last hidden states at the predicting positions.
    """

    class Config(DivergenceConfig):
        """texts: number of sequences to write and keep; ``sampling`` says how they are drawn."""

        strength: float = Field(1.0, ge=0)
        temperature: float = Field(1.0, gt=0)
        texts: int = Field(256, ge=1)
        minibatches_per_step: int = Field(1, ge=1)

    needs = Needs(general=True)

    def begin(self, state: State, start: TaskStart) -> State:
        if start.task > 1 or start.text is None:
            return state
        text = start.text(self.config.texts)
        return {
            "tokens": torch.tensor([token for sequence in text.sequences for token in sequence]),
            "lengths": torch.tensor([len(sequence) for sequence in text.sequences]),
            "states": text.states.states,
        }

    def text(self, state: State) -> Text | None:
        if "tokens" not in state:
            return None
        lengths = state["lengths"].tolist()
        sequences = [tokens.tolist() for tokens in state["tokens"].split(lengths)]
        starts = list(accumulate((length - 1 for length in lengths), initial=0))
        states = TokenStates(state["states"], starts)
        return Text(sequences, states, self.config.minibatches_per_step)

    def loss(self, state: State, step: Step) -> Tensor:
        if step.general is None:
            return step.zero()
        return step.general.mean(self.config.between)

    def unpack(self, tensors: Mapping[str, Tensor]) -> State:
        return unpacked(tensors, _PARTS, single=_PARTS)


def refuse_no_text(sequences: Sequence[Sequence[int]]) -> None:
    """Raise HoldfastError if the untouched model wrote nothing but empty sequences."""
    if not sequences:
        raise HoldfastError(
            "general: every text that the untouched model wrote is empty, so there is nothing to "
            "hold it to; raise general.texts, or leave general out of the method"
        )


_PARTS = ("tokens", "lengths", "states")
