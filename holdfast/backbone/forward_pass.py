"""The forward pass of a step, and the gradient of any number of losses on it.

Losses are functions of the last hidden states and of the factors. Each is differentiated in these
first, then through the model. Synaptic Intelligence needs the gradient of the fit term apart from
that of the others, at no second forward pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from holdfast.core.processes import all_reduce_


class ForwardPass:
    """The states of some batches, and the backward pass of any number of losses.

    states: after the final norm, [n, d] of each batch, which losses are functions of; shared:
    whether the batches are one process's parts of minibatches that several compute.
    """

    def __init__(
        self, graph: Sequence[Tensor], parameters: Mapping[str, Tensor], *, shared: bool
    ) -> None:
        """graph: the states as the model gave them; parameters: what gradients are taken in."""
        self.states = tuple(one.detach().requires_grad_() for one in graph)
        self._graph = graph
        self._parameters = parameters
        self._shared = shared

    def gradient(self, loss: Tensor, *, again: bool = False) -> dict[str, Tensor]:
        """The gradient of a scalar in every parameter; again: another loss follows.

        A loss may depend on the parameters directly too. Of shared batches the gradient through the
        model is summed over the processes; the direct one is the same in all of them.
        """
        leaves = list(self._parameters.values())
        found: Sequence[Tensor | None] = torch.autograd.grad(
            loss, [*self.states, *leaves], retain_graph=True, allow_unused=True
        )
        upstream, direct = found[: len(self.states)], found[len(self.states) :]
        read = [
            (state, one)
            for state, one in zip(self._graph, upstream, strict=True)
            if one is not None
        ]
        through: Sequence[Tensor | None] = [None] * len(leaves)
        if read:
            outputs, slopes = zip(*read, strict=True)
            through = torch.autograd.grad(
                outputs, leaves, slopes, retain_graph=again, allow_unused=True
            )
        if self._shared:
            through = [
                all_reduce_(torch.zeros_like(leaf) if one is None else one)
                for leaf, one in zip(leaves, through, strict=True)
            ]
        return {
            name: _sum(leaf, one, other)
            for (name, leaf), one, other in zip(
                self._parameters.items(), through, direct, strict=True
            )
        }


def _sum(leaf: Tensor, *parts: Tensor | None) -> Tensor:
    known = [part for part in parts if part is not None]
    return sum(known[1:], known[0]) if known else torch.zeros_like(leaf)
