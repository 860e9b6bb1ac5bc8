"""The element-wise parts of a decoder layer, forwards and backwards, for frozen weights.

Plain functions of tensors: each is one fused kernel where a compiler is at hand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The root-mean-square norm along the last dimension, taken in float32 at least.

    x: [..., d]; weight: broadcast over it. Returns the output, and for the backward pass
    the normalised x and the scale [..., 1].
    """
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    size = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
    scale = (size.square() / x.shape[-1] + epsilon).rsqrt()
    normal = (wide * scale).to(x.dtype)
    return normal * weight, (normal, scale)


def rms_norm_backward(
    upstream: Tensor, weight: Tensor, _epsilon: float, normal: Tensor, scale: Tensor
) -> Tensor:
    """The gradient of x: ``scale (g - normal mean(g normal))`` with ``g = upstream weight``."""
    g = (upstream * weight).to(scale.dtype)
    mean = (g * normal).mean(-1, keepdim=True)
    return torch.addcmul(g, normal, mean, value=-1).mul_(scale).to(upstream.dtype)


def rms_norm_fused(x: Tensor, weight: Tensor, epsilon: float) -> tuple[Tensor, tuple[Tensor, ...]]:
    """:func:`rms_norm` by torch's own kernel, which keeps x for the backward pass."""
    inside, outside = _weights(weight)
    normal = F.rms_norm(x, x.shape[-1:], inside, epsilon)
    return (normal if outside is None else normal * outside), (x,)


def rms_norm_fused_backward(upstream: Tensor, weight: Tensor, epsilon: float, x: Tensor) -> Tensor:
    """:func:`rms_norm_backward` by the kernel that torch's autograd calls."""
    inside, outside = _weights(weight)
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        normal = F.rms_norm(leaf, x.shape[-1:], inside, epsilon)
    g = upstream if outside is None else upstream * outside
    (into,) = torch.autograd.grad(normal, leaf, g)
    return into


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions: ``x cos + swap(x) sin``, the halves of the last dimension swapped.

    cos, sin: broadcast over x; the first half of sin carries its minus.
    """
    out = x * cos
    (left, right), (a, b), (sin_a, sin_b) = map(_halves, (out, x, sin))
    left.addcmul_(b, sin_a)
    right.addcmul_(a, sin_b)
    return out


def rotate_backward(upstream: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The gradient of x; swapping is its own transpose."""
    out = upstream * cos
    (left, right), (a, b), (sin_a, sin_b) = map(_halves, (out, upstream, sin))
    left.add_(b * sin_b)
    right.add_(a * sin_a)
    return out


def gated(gate_up: Tensor) -> Tensor:
    """``silu(gate) up``, of gate and up side by side: [n, 2 f] -> [n, f]."""
    gate, up = _halves(gate_up)
    return F.silu(gate).mul_(up)


def gated_backward(upstream: Tensor, gate_up: Tensor, into: Tensor) -> None:
    """The gradient of gate and up, side by side: [n, f] -> ``into`` [n, 2 f]."""
    (gate, up), (into_gate, into_up) = _halves(gate_up), _halves(into)
    sigmoid = gate.sigmoid()
    silu = gate * sigmoid
    # silu' = sigmoid + silu (1 - sigmoid)
    slope = torch.addcmul(sigmoid + silu, silu, sigmoid, value=-1)
    # Copied: the compiler gives up on results that are written into slices.
    into_gate.copy_(slope.mul_(up).mul_(upstream))
    into_up.copy_(silu.mul_(upstream))


def gated_fused_backward(upstream: Tensor, gate_up: Tensor, into: Tensor) -> None:
    """:func:`gated_backward` by torch's kernel for the derivative of silu."""
    (gate, up), (into_gate, into_up) = _halves(gate_up), _halves(into)
    torch.mul(upstream, F.silu(gate), out=into_up)
    torch.ops.aten.silu_backward.grad_input(upstream * up, gate, grad_input=into_gate)


def _halves(x: Tensor) -> tuple[Tensor, Tensor]:
    left, right = x.chunk(2, dim=-1)
    return left, right


def _weights(weight: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """The weights that the kernel applies and those left to apply: it takes one for all heads."""
    return (weight, None) if weight.dim() == 1 else (None, weight)


class Pointwise(NamedTuple):
    """The functions of this module, plain, by torch's own fused kernels, or compiled."""

    rms_norm: Callable[..., tuple[Tensor, tuple[Tensor, ...]]] = rms_norm
    rms_norm_backward: Callable[..., Tensor] = rms_norm_backward
    rotate: Callable[..., Tensor] = rotate
    rotate_backward: Callable[..., Tensor] = rotate_backward
    gated: Callable[..., Tensor] = gated
    gated_backward: Callable[..., None] = gated_backward


def pointwise_on(device: torch.device) -> Pointwise:
    """The functions for a device.

    On a GPU all of them are bound by memory, so fewer kernels are faster; on a CPU torch's own are
    no faster, and it has none for the backward pass of the norm.
    """
    if device.type == "cpu":
        return Pointwise()
    return Pointwise(
        rms_norm=rms_norm_fused,
        rms_norm_backward=rms_norm_fused_backward,
        gated_backward=gated_fused_backward,
    )


def compiled() -> Pointwise:
    """Each function as one fused kernel; the first call of each takes seconds.

    The same numbers up to rounding.
    """
    fused: list[Any] = [torch.compile(function, dynamic=True) for function in Pointwise()]
    return Pointwise(*fused)
