"""The forward pass of a step, losses over next-token logits in chunks, and their gradients.

Losses are functions of the last hidden states and of the factors. Each is differentiated in these
first, then through the model. So Synaptic Intelligence gets the gradient of the fit term apart from
that of the other terms without a second forward pass.

The output head is frozen, so a loss needs only its gradient in the hidden states. It is computed in
the forward pass, a chunk of tokens at a time, and each chunk's logits are freed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from holdfast.core.processes import all_reduce_
from holdfast.model.sequences import Batch, BatchShard

TokenLoss = Callable[["TokenLogits"], Tensor]

# 2^24 logits are 64 MiB in float32: small batches are one chunk, a 150k vocabulary is several.
# A GPU reads the whole head once a chunk, so its chunks are larger, in whole tiles.
_LOGITS_AT_ONCE = {"cpu": 1 << 24, "cuda": 1 << 27}
_TILE = {"cuda": 128}


def tokens_at_once(device: str, vocabulary: int, logits: int | None = None) -> int:
    """How many tokens to project at a time on a type of device; logits: a bound for its default."""
    tokens = (logits or _LOGITS_AT_ONCE.get(device, 1 << 24)) // vocabulary
    tile = _TILE.get(device, 1)
    return max(1, tokens - tokens % tile if tokens > tile else tokens)


class SplitModel(Protocol):
    """A model that gives its last hidden states, and their logits; head: the output layer."""

    @property
    def device(self) -> torch.device: ...

    @property
    def head(self) -> Any: ...

    def hidden(self, ids: Tensor, mask: Tensor | None = None, /) -> Tensor: ...

    def logits(self, hidden: Tensor, /) -> Tensor: ...


class TokenLogits:
    """The arguments of a token loss, for n tokens.

    student: logits [n, vocabulary], differentiable; teacher: the previous model's, constant; both
    in the model's precision, so losses convert them to float32 at least; targets: token ids [n]
    that follow each position.
    """

    def __init__(
        self, backbone: SplitModel, hidden: Tensor, teacher_hidden: Tensor | None, targets: Tensor
    ) -> None:
        self._backbone = backbone
        self._hidden = hidden
        self._teacher_hidden = teacher_hidden
        self.targets = targets

    @cached_property
    def student(self) -> Tensor:
        return self._backbone.logits(self._hidden)

    @cached_property
    def teacher(self) -> Tensor:
        assert self._teacher_hidden is not None, "this loss needs the previous model"
        with torch.no_grad():
            return self._backbone.logits(self._teacher_hidden)


class Projection:
    """The n predicted tokens of one minibatch, to average token losses over.

    hidden: [n, d], differentiable; teacher_hidden: [n, d] or None; targets: [n]; shard: if several
    processes share the minibatch, this one's part of it; means are over the whole minibatch.
    """

    def __init__(
        self,
        backbone: SplitModel,
        hidden: Tensor,
        teacher_hidden: Tensor | None,
        targets: Tensor,
        logits_at_once: int | None = None,
        shard: BatchShard | None = None,
    ) -> None:
        self._backbone = backbone
        self._hidden = hidden
        self._teacher_hidden = teacher_hidden
        self._targets = targets
        self._shard = shard
        self.tokens = len(targets) if shard is None else sum(shard.lengths)
        vocabulary = int(backbone.head.weight.shape[0])
        self._chunk = tokens_at_once(hidden.device.type, vocabulary, logits_at_once)

    @property
    def has_teacher(self) -> bool:
        """Whether the previous model's states are known."""
        return self._teacher_hidden is not None

    def mean(self, loss: TokenLoss, weights: Tensor | None = None) -> Tensor:
        """The mean over the tokens of ``loss`` (TokenLogits -> [n]), as a scalar.

        weights: of the tokens, [n]; the result is the mean of weight times loss. If processes share
        the minibatch, all get the same value, and each the gradient of its own tokens.
        """
        if not len(self._targets):
            return self._hidden.sum() * 0
        if len(self._targets) <= self._chunk:
            each = loss(self._all_tokens)
            each = each if weights is None else weights * each
            if self._shard is None:
                return each.mean()
            mean: Tensor = each.sum() / self.tokens
        else:
            mean = _ChunkedMean.apply(self._hidden, self, loss, weights)  # type: ignore[no-untyped-call]
        if self._shard is not None:
            mean = _OverAll.apply(mean, self._shard.counted)  # type: ignore[no-untyped-call]
        return mean

    def mean_of(self, values: Tensor, chosen: Tensor | None = None) -> Tensor:
        """The mean of constants [n] over the tokens, or over the ``chosen`` ones, [n] bool."""
        if chosen is not None:
            values = values[chosen]
        if self._shard is None:
            return values.mean()
        both = torch.stack([values.sum(), values.new_tensor(len(values))])
        both = all_reduce_(both if self._shard.counted else torch.zeros_like(both))
        return both[0] / both[1]

    def only(self, chosen: Tensor) -> Tensor:
        """Weights [n] with which :meth:`mean` is over the ``chosen`` tokens, [n] bool."""
        dtype = torch.promote_types(self._hidden.dtype, torch.float32)
        wide = chosen.to(self._hidden.device, dtype)
        return wide / self.mean_of(wide)

    @cached_property
    def _all_tokens(self) -> TokenLogits:
        # Projected once for all losses on this minibatch.
        return TokenLogits(self._backbone, self._hidden, self._teacher_hidden, self._targets)

    def chunk(self, hidden: Tensor, start: int) -> TokenLogits:
        """The chunk of tokens that begins at ``start``, with ``hidden`` as their states."""
        end = start + self._chunk
        teacher = None if self._teacher_hidden is None else self._teacher_hidden[start:end]
        return TokenLogits(self._backbone, hidden, teacher, self._targets[start:end])

    def chunk_bounds(self) -> list[tuple[int, int]]:
        """The start and end of every chunk."""
        n = len(self._targets)
        return [(start, min(start + self._chunk, n)) for start in range(0, n, self._chunk)]


class _ChunkedMean(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, projection: Projection, loss: TokenLoss, weights: Tensor | None
    ) -> Tensor:
        wide = torch.promote_types(hidden.dtype, torch.float32)
        total = torch.zeros((), dtype=wide, device=hidden.device)
        gradient = torch.empty_like(hidden)
        for start, end in projection.chunk_bounds():
            piece = hidden[start:end].detach().requires_grad_()
            with torch.enable_grad():
                each = loss(projection.chunk(piece, start))
                part = (each if weights is None else weights[start:end] * each).sum()
            (gradient[start:end],) = torch.autograd.grad(part, piece)
            total += part.detach()
        ctx.save_for_backward(gradient)
        ctx.tokens = projection.tokens
        return total / projection.tokens

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None, None, None]:
        (gradient,) = ctx.saved_tensors
        # A scalar tensor does not change the gradient's type.
        return gradient * (upstream[0] / ctx.tokens), None, None, None


class _OverAll(torch.autograd.Function):
    """Sum the processes' parts of a mean; each process has the gradient of its own part."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, counted: bool) -> Tensor:
        ctx.counted = counted
        return all_reduce_(part.clone() if counted else torch.zeros_like(part))

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None]:
        return upstream[0] if ctx.counted else torch.zeros_like(upstream[0]), None


def token_cross_entropy(tokens: TokenLogits) -> Tensor:
    """``-log p(z_l | z_<l)`` of every predicted token: [n].  Source: eq. app-sft."""
    wide = tokens.student.to(torch.promote_types(tokens.student.dtype, torch.float32))
    return F.cross_entropy(wide, tokens.targets, reduction="none")


class ForwardPass:
    """The states of some batches, and the backward pass of any number of losses.

    states: of each batch, after the final norm, [n, d]; projections: of each batch, the argument of
    losses.
    """

    def __init__(
        self,
        backbone: SplitModel,
        batches: Sequence[Batch],
        graph: Sequence[Tensor],
        parameters: Mapping[str, Tensor],
    ) -> None:
        """graph: the states with the model's graph; parameters: those to differentiate in."""
        self.states = tuple(state.detach().requires_grad_() for state in graph)
        self.projections = [
            Projection(backbone, state, batch.teacher_states, batch.targets, shard=batch.shard)
            for batch, state in zip(batches, self.states, strict=True)
        ]
        self._graph = graph
        self._parameters = parameters
        self._shared = any(batch.shard is not None for batch in batches)

    def gradient(self, loss: Tensor, *, again: bool = False) -> dict[str, Tensor]:
        """The gradient of a scalar in every parameter; again: keep the graph for another loss.

        A loss may depend on the parameters directly, too. For shared batches the gradient through
        the model is summed over the processes; the direct one is the same in all of them.
        """
        leaves = list(self._parameters.values())
        gradients: Sequence[Tensor | None] = torch.autograd.grad(
            loss, [*self.states, *leaves], retain_graph=True, allow_unused=True
        )
        upstream, direct = gradients[: len(self.states)], gradients[len(self.states) :]
        used = [
            (state, slope)
            for state, slope in zip(self._graph, upstream, strict=True)
            if slope is not None
        ]
        through: Sequence[Tensor | None] = [None] * len(leaves)
        if used:
            outputs, slopes = zip(*used, strict=True)
            through = torch.autograd.grad(
                outputs, leaves, slopes, retain_graph=again, allow_unused=True
            )
        if self._shared:
            through = [
                all_reduce_(torch.zeros_like(leaf) if part is None else part)
                for leaf, part in zip(leaves, through, strict=True)
            ]
        return {
            name: _sum(leaf, *parts)
            for (name, leaf), *parts in zip(self._parameters.items(), through, direct, strict=True)
        }


def _sum(leaf: Tensor, *parts: Tensor | None) -> Tensor:
    gradients = [part for part in parts if part is not None]
    return sum(gradients[1:], gradients[0]) if gradients else torch.zeros_like(leaf)
