"""Frozen linear maps with low-rank branches; maps that read the same tensor are computed together.

q, k and v of a block read one tensor, gate and up another. Their frozen matrices lie in one
storage and so do their input sides: one product with each, one dropout mask, one gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from holdfast.backbone.adapters.dropout import Dropout
from holdfast.backbone.adapters.frozen import shape_of, side_by_side
from holdfast.backbone.sequences import by_count, first

Observer = Callable[[Tensor], None]


class AdaptedLinear(nn.Module):
    """A frozen linear map plus a low-rank branch: ``W x + rho B A dropout(x)``.

    down: A, [r, d_in]; up: B, [d_out, r]; both trainable. open: False skips the branch, which
    is exact while B = 0.
    Source: eq. app-lora.
    """

    group: SharedInput

    def __init__(self, base: Any, down: nn.Parameter, up: nn.Parameter) -> None:
        super().__init__()
        self.base = base
        self.down = down
        self.up = up
        self.open = True
        self.mean_inputs: list[Tensor] | None = None  # where to append that of each pass

    def forward(self, x: Tensor) -> Tensor:
        if self.mean_inputs is not None:
            self.mean_inputs.append(x.detach().flatten(0, -2).to(self.down.dtype).mean(0))
        return self.group.output_of(self, x)


class Seen(NamedTuple):
    """What the forward pass keeps for the backward pass: [n, d_in], [n, d_in], [n, r].

    dropped: the low-rank branch's input; mask: None without dropout; low: rho A times it.
    """

    dropped: Tensor
    mask: Tensor | None
    low: Tensor


class SharedInput:
    """Linear maps that read the same tensor, side by side in one storage.

    Their factors are contiguous in the flat workspace, the input sides first.
    factors: their span of the workspace, a trainable view; gradients: buffers that :meth:`backward`
    overwrites, one for each loss; scale: rho; repeated: whether passes repeat earlier ones, so that
    observers do not see their inputs. Without factors the maps are plain.
    """

    def __init__(
        self,
        maps: Sequence[Any],
        factors: nn.Parameter | None,
        scale: float,
        dropout: Dropout,
        narrow: Tensor | None = None,
    ) -> None:
        """narrow: the factors cast to the maps' precision, where the two differ."""
        self.maps = list(maps)
        self.factors = factors
        self.gradients: list[Tensor] = []
        self.dropout = dropout
        self._scale = scale
        bases = [one.base if isinstance(one, AdaptedLinear) else one for one in maps]
        self._matrix, self._bias = side_by_side(bases)
        self.widths = [shape_of(base)[0] for base in bases]
        self._width_in = shape_of(bases[0])[1]
        self._rank = 0
        self._into: list[tuple[Tensor, list[Tensor]]] = []
        if factors is not None:
            self._rank = len(factors) // (len(maps) * self._width_in + sum(self.widths))
            # Made once: slicing views costs as much as a small product.
            self._views = self._split(factors.detach() if narrow is None else narrow)
            for one in maps:
                object.__setattr__(one, "group", self)  # not a submodule: it owns no parameters
        self._input: Tensor | None = None
        self._outputs: dict[int, Tensor] = {}
        self.repeated = False
        self.observe(None, None)

    def observe(self, inputs: Observer | None, outputs: Observer | None) -> None:
        """Show every pass's inputs [n, d_in] and every gradient of the outputs [n, sum of d_out].

        None: no observer.
        """
        self._observed_inputs, self._observed_outputs = inputs, outputs

    @property
    def open(self) -> bool:
        """Whether the low-rank branches take part."""
        return self.factors is not None and self.maps[0].open

    def forward(self, rows: Tensor, mask: Tensor | None) -> tuple[Tensor, Seen | None]:
        """``y_i = W_i x + b_i + rho B_i A_i (m x)`` of all maps, side by side.

        rows: x, [n, d_in]; mask: zeros and ones [n, d_in], not yet divided by what is kept.
        Returns y, [n, sum of d_out], and what :meth:`backward` needs.
        """
        if self._observed_inputs is not None and not self.repeated:
            self._observed_inputs(rows)
        if self._bias is None:
            outputs = rows @ self._matrix().t()
        else:
            outputs = torch.addmm(self._bias, rows, self._matrix().t())
        if not self.open:
            return outputs, None
        down, ups = self._views
        dropped = rows if mask is None else rows * mask
        low = (dropped @ down.t()).mul_(self._factor(mask))
        parts = _columns(low, self._rank)
        for output, part, up in zip(self._pieces(outputs), parts, ups, strict=True):
            output.addmm_(part, up.t())
        return outputs, Seen(dropped, mask, low)

    def write_to(self, gradient: Tensor) -> None:
        """Let :meth:`backward` overwrite one more buffer of the shape of ``factors``."""
        self.gradients.append(gradient)
        self._into.append(self._split(gradient))

    def backward(
        self,
        seen: Seen | None,
        upstream: Tensor,
        rows: Sequence[int],
        *,
        needs_input: bool = True,
    ) -> Tensor | None:
        """Overwrite ``gradients`` with those of the factors; return that of x.

        upstream: the gradient of y, [n, sum of d_out]; rows: of each of several losses, the first
        so many that were ``seen``; n in sum.
        """
        if self._observed_outputs is not None:
            self._observed_outputs(upstream)
        into_x = upstream @ self._matrix() if needs_input else None
        if seen is None:
            for gradient in self.gradients[: len(rows)]:
                gradient.zero_()
            return into_x
        down, ups = self._views
        into_low = upstream.new_empty(len(upstream), seen.low.shape[1])
        targets = _columns(into_low, self._rank)
        for piece, up, target in zip(self._pieces(upstream), ups, targets, strict=True):
            torch.mm(piece, up, out=target)
        into_low.mul_(self._factor(seen.mask))
        pieces = zip(by_count(upstream, rows), by_count(into_low, rows), self._into, strict=False)
        for one, one_low, (into_down, into_ups) in pieces:
            _product(one_low.t(), first(seen.dropped, len(one)), into_down)
            lows = _columns(first(seen.low, len(one)), self._rank)
            for piece, low, into_up in zip(self._pieces(one), lows, into_ups, strict=True):
                _product(piece.t(), low, into_up)
        if into_x is None:
            return None
        if seen.mask is None:
            return into_x.addmm_(into_low, down)
        branch = into_low @ down
        for one, piece in zip(by_count(into_x, rows), by_count(branch, rows), strict=True):
            one.addcmul_(piece, first(seen.mask, len(one)))
        return into_x

    def output_of(self, one: AdaptedLinear, x: Tensor) -> Tensor:
        """The output of one map at x, [..., d_in] -> [..., d_out], as a module of the model.

        The first map called on a tensor computes the outputs of all; the others take theirs.
        A map that is called on a different tensor is still correct, only slower.
        """
        if x is not self._input or id(one) not in self._outputs:
            mask = self.dropout.mask([x.numel() // x.shape[-1]], x)
            outputs: Tensor = _Differentiable.apply(x, self.factors, mask, self)  # type: ignore[no-untyped-call]
            self._input = x
            self._outputs = dict(
                zip(map(id, self.maps), outputs.split(self.widths, dim=-1), strict=True)
            )
        found = self._outputs.pop(id(one))
        if not self._outputs:
            self._input = None
        return found

    def _split(self, flat: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Views of a tensor like ``factors``: input sides [k r, d_in], output sides [d_out, r]."""
        end = len(self.maps) * self._rank * self._width_in
        ups = flat[end:].split([width * self._rank for width in self.widths])
        views = [up.view(width, self._rank) for up, width in zip(ups, self.widths, strict=True)]
        return flat[:end].view(len(self.maps) * self._rank, -1), views

    def _pieces(self, outputs: Tensor) -> Sequence[Tensor]:
        if len(self.widths) == 1:
            return (outputs,)
        pieces: Sequence[Tensor] = outputs.split_with_sizes(self.widths, dim=1)
        return pieces

    def _factor(self, mask: Tensor | None) -> float:
        return self._scale if mask is None else self._scale / self.dropout.kept


class _Differentiable(torch.autograd.Function):
    """A group of maps inside a model that autograd differentiates."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, factors: Tensor, mask: Tensor | None, group: SharedInput
    ) -> Tensor:
        outputs, seen = group.forward(x.reshape(-1, x.shape[-1]), mask)
        ctx.group, ctx.shape, ctx.open = group, x.shape, seen is not None
        ctx.save_for_backward(factors, *(seen or ()))
        return outputs.view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        into_x = ctx.group.backward(
            Seen(*ctx.saved_tensors[1:]) if ctx.open else None,
            upstream.reshape(-1, upstream.shape[-1]),
            [upstream.numel() // upstream.shape[-1]],
            needs_input=ctx.needs_input_grad[0],
        )
        into_factors = ctx.group.gradients[0].clone()
        return None if into_x is None else into_x.view(ctx.shape), into_factors, None, None


def _columns(rows: Tensor, width: int) -> Sequence[Tensor]:
    if rows.shape[1] == width:
        return (rows,)
    return rows.split_with_sizes([width] * (rows.shape[1] // width), dim=1)


def _product(left: Tensor, right: Tensor, out: Tensor) -> None:
    """Write ``left @ right`` to ``out``, whose precision may be another."""
    if left.dtype == out.dtype:
        torch.mm(left, right, out=out)
    elif left.is_cuda and out.dtype == torch.float32:
        torch.mm(left, right, out_dtype=torch.float32, out=out)  # summed and kept in float32
    else:
        out.copy_(left @ right)
