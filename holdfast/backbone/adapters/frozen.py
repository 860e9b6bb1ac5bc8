"""Frozen linear maps: plain ones, GPT-2's, and those whose matrix is stored in 8 or 4 bits.

A quantized matrix is made anew, in the precision of the model, for each product and freed after it.
So inputs and gradients are never rounded to 8 bits, and the backward pass is that of the dense
matrix ``Q(W)``.
Source: Dettmers et al. 2022, "LLM.int8()" (the rows of int8), without its decomposition; Dettmers
et al. 2023, "QLoRA" (nf4), without its second quantization.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_BLOCK = 64  # weights of nf4 that share a scale
_LEVELS = 127  # of int8, on either side of zero


def transposed(module: nn.Module) -> bool:
    """GPT-2's ``Conv1D`` is a linear map whose weight is stored [d_in, d_out]."""
    return type(module).__name__ == "Conv1D"


class QuantizedLinear(nn.Module):
    """``y = Q(W) x + b``, in place of a plain map.

    packed: the rounded entries; scales: of the rows of int8, of the blocks of nf4, float32;
    original: W in the model's precision and in host memory, [d_out, d_in], None once forgotten.
    """

    packed: Tensor
    scales: Tensor

    def __init__(self, plain: Any, kind: str, device: torch.device) -> None:
        """plain: a linear map in host memory, whose matrix is taken; kind: ``int8`` or ``nf4``;
        device: where the quantized matrix is to be.
        """
        super().__init__()
        weight = plain.weight.detach()
        self.original: Tensor | None = weight.t() if transposed(plain) else weight
        self.kind = kind
        self.shape = self.original.shape
        self.dtype = weight.dtype
        self.bias = plain.bias
        plain.weight = None
        self._empty = [plain]  # in a list, so that it is no submodule
        self.register_buffer("packed", torch.empty(0, device=device))
        self.register_buffer("scales", torch.empty(0, device=device))
        self.write(self.original.to(device))

    @torch.no_grad()
    def write(self, matrix: Tensor) -> None:
        """Quantize ``matrix`` [d_out, d_in], on the device, and keep the result as Q(W)."""
        wide = matrix.float().contiguous()
        if self.kind == "int8":
            largest = wide.abs().amax(dim=1).clamp_(min=torch.finfo(torch.float32).tiny)
            self.scales = largest / _LEVELS
            self.packed = (wide * (_LEVELS / largest)[:, None]).round_().to(torch.int8)
            return
        packed, state = _bitsandbytes().quantize_4bit(wide, blocksize=_BLOCK, quant_type="nf4")
        self.packed, self.scales = packed, state.absmax

    @torch.no_grad()
    def dense(self) -> Tensor:
        """Q(W), [d_out, d_in], in the model's precision."""
        if self.kind == "int8":
            return (self.packed * self.scales[:, None]).to(self.dtype)
        narrow = self.dtype if self.dtype != torch.float64 else torch.float32
        library = _bitsandbytes()
        state = library.QuantState(
            self.scales, shape=self.shape, dtype=narrow, blocksize=_BLOCK, quant_type="nf4"
        )
        dense: Tensor = library.dequantize_4bit(self.packed, state)
        return dense.to(self.dtype)

    def plain(self) -> nn.Module:
        """A map of the kind that this one replaced, with the matrix Q(W)."""
        plain = copy.copy(self._empty[0])
        plain._parameters = {**plain._parameters, "bias": self.bias}
        dense = self.dense()
        dense = dense.t().contiguous() if transposed(plain) else dense
        plain.weight = nn.Parameter(dense, requires_grad=False)
        module: nn.Module = plain
        return module

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = _Product.apply(x, self)  # type: ignore[no-untyped-call]
        return out if self.bias is None else out + self.bias


class _Product(torch.autograd.Function):
    """``Q(W) x``, keeping neither x nor the dense matrix."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, one: QuantizedLinear) -> Tensor:
        ctx.one = one
        return F.linear(x, one.dense())

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None]:
        return upstream[0] @ ctx.one.dense(), None


def quantize(model: Any, kind: str, device: torch.device) -> None:
    """Store every linear map of a model but its output head in 8 or 4 bits.

    model: in host memory; kind: ``int8`` or ``nf4``; device: where the quantized matrices are to
    be, which holds one dense matrix at a time.
    """
    head = model.get_output_embeddings()
    for name, module in list(model.named_modules()):
        linear = isinstance(module, nn.Linear) or transposed(module)
        if linear and module is not head:
            replace(model, name, QuantizedLinear(module, kind, device))


def unquantize(model: nn.Module) -> None:
    """Put plain maps in the place of quantized ones; the outputs stay the same."""
    for name, module in list(model.named_modules()):
        if isinstance(module, QuantizedLinear):
            replace(model, name, module.plain())


def forget_originals(model: nn.Module) -> None:
    """Free the matrices from which quantized maps were made."""
    for module in model.modules():
        if isinstance(module, QuantizedLinear):
            module.original = None


def replace(model: nn.Module, name: str, module: nn.Module) -> None:
    """Put a module in the place of the one of this dotted name."""
    parent, _, child = name.rpartition(".")
    setattr(model.get_submodule(parent), child, module)


def shape_of(base: Any) -> tuple[int, int]:
    """d_out and d_in of a frozen map."""
    if isinstance(base, QuantizedLinear):
        return base.shape[0], base.shape[1]
    rows, columns = base.weight.shape
    return (columns, rows) if transposed(base) else (rows, columns)


def precision_of(base: Any) -> torch.dtype:
    """The precision of a frozen map's products."""
    dtype: torch.dtype = base.dtype if isinstance(base, QuantizedLinear) else base.weight.dtype
    return dtype


def may_share(bases: Sequence[Any]) -> bool:
    """Whether maps of one input can be computed as one map."""
    first = bases[0]
    kind = type(first)
    return kind in (nn.Linear, QuantizedLinear) and all(
        type(base) is kind
        and shape_of(base)[1] == shape_of(first)[1]
        and precision_of(base) == precision_of(first)
        and (base.bias is None) == (first.bias is None)
        and (kind is QuantizedLinear or base.weight.device == first.weight.device)
        for base in bases
    )


def side_by_side(bases: Sequence[Any]) -> tuple[Callable[[], Tensor], Tensor | None]:
    """The matrices of all maps as one, [sum of d_out, d_in], and their biases.

    Of plain maps the matrix is one tensor, of which theirs become views; of quantized ones it is
    made at each call.
    """
    bias = bases[0].bias
    if len(bases) > 1 and bias is not None:
        bias = _joined([base.bias for base in bases])
    if isinstance(bases[0], QuantizedLinear):
        return partial(_dense, bases), bias
    if len(bases) > 1:
        weight = _joined([base.weight for base in bases])
    else:
        weight = bases[0].weight.detach()
        weight = weight.t() if transposed(bases[0]) else weight
    return lambda: weight, bias


def _dense(bases: Sequence[QuantizedLinear]) -> Tensor:
    return bases[0].dense() if len(bases) == 1 else torch.cat([base.dense() for base in bases])


def _joined(parameters: Sequence[nn.Parameter]) -> Tensor:
    joined = torch.cat([one.detach() for one in parameters])
    for one, part in zip(parameters, joined.split([len(p) for p in parameters]), strict=True):
        one.data = part
    return joined


def silence_bitsandbytes() -> None:
    """Call it before what imports bitsandbytes, as PEFT does where it is installed.

    On a processor it warns of a kernel that is missing, which nothing here calls.
    """
    logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)


@cache
def _bitsandbytes() -> Any:
    silence_bitsandbytes()
    import bitsandbytes.functional

    return bitsandbytes.functional
