"""The forward pass of an adapted model, and the backward pass to its low-rank factors.

Losses are functions of the last hidden states. Each is differentiated in these first; then one
backward pass through the model serves all of them. Synaptic Intelligence needs the gradient of the
fit term apart from that of the others, at no second pass.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from holdfast.backbone.adapters.workspace import Adapters
from holdfast.backbone.decoder.decoder import Decoder
from holdfast.backbone.sequences import Batch, by_batch
from holdfast.core.processes import summed


class ForwardPass(ABC):
    """One forward pass, and the backward pass of any number of losses.

    states: after the final norm, [n, d] of each batch, which losses are functions of; shared:
    whether the batches are one process's parts of minibatches that several compute.
    """

    def __init__(self, states: Sequence[Tensor], adapters: Adapters, *, shared: bool) -> None:
        # Views, since torch's operation counter cannot watch leaves under `autograd.grad`.
        self.states = tuple(one.detach().requires_grad_().view_as(one) for one in states)
        self._adapters = adapters
        self._shared = shared

    def backward(self, *losses: tuple[Tensor, Tensor]) -> None:
        """Add the gradient of each loss, a scalar, to its buffer [P].

        A loss may depend on the factors (``Adapters.parameters``) directly too. Of shared batches
        the gradient through the model is summed over the processes; the direct one is the same in
        all of them.
        """
        upstreams, buffers = [], []
        for place, (loss, buffer) in enumerate(losses, start=1):
            found: Sequence[Tensor | None] = torch.autograd.grad(
                loss,
                [*self.states, self._adapters.parameters],
                retain_graph=place < len(losses),
                allow_unused=True,
            )
            *upstream, direct = found
            if direct is not None:
                buffer += direct
            while upstream and upstream[-1] is None:
                upstream.pop()  # batches that the loss does not read
            if upstream:
                upstreams.append([
                    torch.zeros_like(state) if one is None else one
                    for state, one in zip(self.states, upstream, strict=False)
                ])  # fmt: skip
                buffers.append(buffer)
        if upstreams:
            self._back(upstreams, buffers)

    def _of_all(self, gradient: Tensor) -> Tensor:
        """The gradient through the model, of this process's rows, made that of all rows."""
        return summed(gradient) if self._shared else gradient

    @abstractmethod
    def _back(self, upstreams: list[list[Tensor]], buffers: list[Tensor]) -> None:
        """Add to each buffer the gradient in the factors, given that in the first states."""


class DecoderPass(ForwardPass):
    """All batches at once through the decoder, forwards and backwards."""

    def __init__(self, decoder: Decoder, batches: Sequence[Batch], *, shared: bool) -> None:
        states, self._kept = decoder.forward(batches, keep=True)
        super().__init__(by_batch(states, batches), decoder.adapters, shared=shared)
        self._decoder = decoder
        self._batches = batches

    def _back(self, upstreams: list[list[Tensor]], buffers: list[Tensor]) -> None:
        gradients = self._decoder.backward(upstreams, self._batches, self._kept)
        for buffer, gradient in zip(buffers, gradients, strict=True):
            buffer += self._of_all(gradient)


class ModulesPass(ForwardPass):
    """The model's own modules under autograd, one backward pass for each loss."""

    def __init__(self, states: Sequence[Tensor], adapters: Adapters, *, shared: bool) -> None:
        """states: with their graph."""
        super().__init__(states, adapters, shared=shared)
        self._graph = states

    def _back(self, upstreams: list[list[Tensor]], buffers: list[Tensor]) -> None:
        leaves, spans = zip(*self._adapters.leaves(), strict=True)
        for upstream, buffer in zip(upstreams, buffers, strict=True):
            into = torch.zeros_like(buffer) if self._shared else buffer
            found: Sequence[Tensor | None] = torch.autograd.grad(
                self._graph[: len(upstream)], leaves, upstream, retain_graph=True, allow_unused=True
            )
            for span, one in zip(spans, found, strict=True):
                if one is not None:
                    into[span] += one
            if self._shared:
                buffer += self._of_all(into)
