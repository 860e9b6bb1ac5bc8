"""Kronecker factors of a model's Fisher information, on given sequences.

Let ``y = W x`` be a linear map at one position of a sequence, and g the gradient of the
log-likelihood with respect to y. Then its gradient with respect to W is ``g x^T``. The mean over
positions, sequences and tokens drawn from the model's own distribution, ``E[x x^T (x) g g^T]``, is
the Fisher information of W without products of two positions of one sequence. ``S (x) G``
approximates it, with ``S = E[x x^T]`` and ``G = E[g g^T]``.
Source: Martens & Grosse 2015, "Optimizing Neural Networks with Kronecker-factored Approximate
Curvature"; Ritter et al. 2018, "Online Structured Laplace Approximations".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn

from holdfast.core.config import Config
from holdfast.core.errors import HoldfastError
from holdfast.model.deterministic import cumulative
from holdfast.model.moments import Moment, MomentSum, MomentSums, moment_of

_LOGITS_AT_ONCE = 1 << 24


@dataclass(frozen=True)
class KroneckerFactors:
    """The factors of one map. inputs: S, [d_in, d_in]; outputs: G, [d_out, d_out]."""

    inputs: Moment
    outputs: Moment


Curvature = Mapping[str, KroneckerFactors]


def mix(
    past: Curvature, new: Curvature, decay: float, device: torch.device
) -> dict[str, KroneckerFactors]:
    """``decay past + (1 - decay) new`` for S and for G of every map, on ``device``."""

    def mixture_of(*moments: Moment) -> Moment:
        first, second = (_mapped(moment, lambda tensor: tensor.to(device)) for moment in moments)
        return first.mixed(second, decay)

    inputs: dict[int, Moment] = {}  # by id: maps that read one tensor share their S
    mixture = {}
    for name, factors in new.items():
        key = id(factors.inputs)
        if key not in inputs:
            inputs[key] = mixture_of(past[name].inputs, factors.inputs)
        outputs = mixture_of(past[name].outputs, factors.outputs)
        mixture[name] = KroneckerFactors(inputs[key], outputs)
    return mixture


def map_tensors(
    curvature: Curvature, change: Callable[[Tensor], Tensor]
) -> dict[str, KroneckerFactors]:
    """Apply ``change``, such as a copy to another device, to every tensor."""
    inputs: dict[int, Moment] = {}
    moved = {}
    for name, factors in curvature.items():
        key = id(factors.inputs)
        if key not in inputs:
            inputs[key] = _mapped(factors.inputs, change)
        moved[name] = KroneckerFactors(inputs[key], _mapped(factors.outputs, change))
    return moved


def _mapped(moment: Moment, change: Callable[[Tensor], Tensor]) -> Moment:
    return moment_of({key: change(part) for key, part in moment.parts().items()})


def named_tensors(curvature: Curvature) -> dict[str, Tensor]:
    """The tensors by name, for a file; an S that several maps share is in it once.

    The keys are ``S MAP`` and ``G MAP``, each with the name of the moment's part after the letter,
    and ``S=FIRST MAP`` if MAP shares the S of FIRST.
    """
    tensors: dict[str, Tensor] = {}
    firsts: dict[int, str] = {}
    for name, factors in sorted(curvature.items()):
        first = firsts.setdefault(id(factors.inputs), name)
        if first == name:
            tensors |= {f"S{key} {name}": part for key, part in factors.inputs.parts().items()}
        else:
            tensors[f"S={first} {name}"] = torch.empty(0)
        tensors |= {f"G{key} {name}": part for key, part in factors.outputs.parts().items()}
    return tensors


def from_named(tensors: Mapping[str, Tensor]) -> dict[str, KroneckerFactors]:
    """The inverse of :func:`named_tensors`; KeyError if a tensor is missing or unknown."""
    parts: dict[tuple[str, str], dict[str, Tensor]] = {}
    firsts: dict[str, str] = {}
    for key, tensor in tensors.items():
        kind, _, name = key.partition(" ")
        if kind.startswith("S="):
            firsts[name] = kind.removeprefix("S=")
        else:
            parts.setdefault((kind[:1], name), {})[kind[1:]] = tensor
    moments = {key: moment_of(moment_parts) for key, moment_parts in parts.items()}
    names = [name for letter, name in moments if letter == "G"]
    wanted = {("S", firsts.get(name, name)) for name in names} | {("G", name) for name in names}
    if moments.keys() != wanted or not {*firsts, *firsts.values()} <= {*names}:
        raise KeyError(f"the tensors {sorted(tensors)} are no curvature")
    return {
        name: KroneckerFactors(moments["S", firsts.get(name, name)], moments["G", name])
        for name in names
    }


class CurvatureConfig(Config):
    """How curvature is measured.

    temperature: of both distributions of the divergence that is expanded to second order, like
    tau_D of the replay loss; at 1 a confident answer has almost no curvature. questions: the weight
    of a question's token, if questions and answers are known apart; an answer's has the weight 1.
    exact_up_to: S and G are exact up to this width; eigenpairs: wider ones keep so many approximate
    eigenpairs, and an isotropic rest that preserves the trace.
    """

    temperature: float = Field(1.0, gt=0)
    questions: float = Field(1.0, ge=0)
    exact_up_to: int = Field(2048, ge=0)
    eigenpairs: int = Field(64, ge=0)


def curvature_numbers(readers: Iterable[tuple[int, Sequence[int]]], config: CurvatureConfig) -> int:
    """How many numbers S and G of adapted maps have; maps that read one tensor share their S.

    readers: for each tensor that maps read, its width d_in, and d_out of each of these maps.
    """
    sums = MomentSums(config.exact_up_to, config.eigenpairs, torch.float32, seed=0)
    return sum(sums.numbers(d_in) + sum(map(sums.numbers, widths)) for d_in, widths in readers)


@dataclass(frozen=True)
class Rows:
    """A batch of sequences, padded on the right.

    ids: [batch, length]; mask: [batch, length] bool, the real tokens; uniforms: [batch, length - 1]
    in [0, 1), which decide the token drawn at each predicting position; weights: of the same shape,
    the factor of each position's log-likelihood.
    """

    ids: Tensor
    mask: Tensor
    uniforms: Tensor
    weights: Tensor


def kronecker_factors(
    hidden_of: Callable[[Tensor, Tensor], Tensor],
    head: Callable[[Tensor], Tensor],
    modules: Mapping[str, nn.Module],
    batches: Iterable[Rows],
    sums: MomentSums,
    temperature: float,
) -> dict[str, KroneckerFactors]:
    """S and G of any linear modules, means over all predicting positions, by forward hooks.

    hidden_of: returns the last hidden states [batch, length, d] of ids and mask, in evaluation mode
    and with a graph to every module's output; head: returns logits of hidden states. At every
    position a token is drawn from the model's whole distribution at ``temperature``, and its
    ``temperature log p`` is differentiated. Modules that read the same tensor share their S.
    """
    inputs: dict[str, MomentSum] = {}
    outputs: dict[str, MomentSum] = {}
    readers: dict[str, str] = {}  # of each module, the first one that reads the same tensor
    for rows in batches:
        first_of: dict[int, str] = {}
        for name, x, g in _passed(hidden_of, head, modules, rows, temperature):
            readers.setdefault(name, first_of.setdefault(x.data_ptr(), name))
            x, g = x[:, :-1][rows.mask[:, 1:]], g[:, :-1][rows.mask[:, 1:]]
            if name not in outputs:
                outputs[name] = sums.new(g.shape[1], g.device, f"{name} outputs")
                if readers[name] == name:
                    inputs[name] = sums.new(x.shape[1], x.device, f"{name} inputs")
            outputs[name].add(g)
            if readers[name] == name:
                inputs[name].add(x)
    means = {name: total.mean() for name, total in inputs.items()}
    return {name: KroneckerFactors(means[readers[name]], outputs[name].mean()) for name in outputs}


def _passed(
    hidden_of: Callable[[Tensor, Tensor], Tensor],
    head: Callable[[Tensor], Tensor],
    modules: Mapping[str, nn.Module],
    rows: Rows,
    temperature: float,
) -> list[tuple[str, Tensor, Tensor]]:
    """Each module's name, input and output gradient on one batch, [batch, length, d] each."""
    real = rows.mask[:, 1:]
    with torch.enable_grad(), _watched(modules) as passed:
        hidden = hidden_of(rows.ids, rows.mask)[:, :-1][real]
        slope = likelihood_slope(head, hidden, rows.uniforms[real], temperature)
        slope = slope * rows.weights[real][:, None]
        missed = [name for name in modules if name not in passed]
        if missed:
            raise HoldfastError(f"{missed[0]} was not passed, so it has no curvature; adapt others")
        outputs = [passed[name][1] for name in modules]
        gradients = torch.autograd.grad((hidden * slope).sum(), outputs)
    shape = rows.ids.shape  # some modules are given all positions as rows
    # An input that is not detached would keep the graph in memory.
    return [
        (name, passed[name][0].detach().reshape(*shape, -1), gradient.reshape(*shape, -1))
        for name, gradient in zip(modules, gradients, strict=True)
    ]


@dataclass(frozen=True)
class Positions:
    """Positions of sequences, with the input and the output gradient of every adapted map.

    keys: [k], uniform random numbers; of several sets together those with the smallest keys are a
    uniform choice again; inputs: x of every map, [k, d_in]; gradients: g, [k, d_out].
    """

    keys: Tensor
    inputs: Mapping[str, Tensor]
    gradients: Mapping[str, Tensor]


def positions_at(
    hidden_of: Callable[[Tensor, Tensor], Tensor],
    head: Callable[[Tensor], Tensor],
    modules: Mapping[str, nn.Module],
    batches: Iterable[tuple[Rows, Tensor]],
    most: float,
    temperature: float,
) -> Positions:
    """x and g at the predicting positions whose key is at most ``most``.

    batches: rows, with the keys [batch, length - 1] of their positions; the other arguments are
    those of :func:`kronecker_factors`.
    """
    inputs: dict[str, list[Tensor]] = {name: [] for name in modules}
    gradients: dict[str, list[Tensor]] = {name: [] for name in modules}
    keys = []
    for rows, drawn in batches:
        drawn = drawn.to(rows.mask.device)
        chosen = rows.mask[:, 1:] & (drawn <= most)
        if chosen.any():
            keys.append(drawn[chosen])
            for name, x, g in _passed(hidden_of, head, modules, rows, temperature):
                inputs[name].append(x[:, :-1][chosen])
                gradients[name].append(g[:, :-1][chosen])
    return Positions(
        torch.cat(keys),
        {name: torch.cat(xs) for name, xs in inputs.items()},
        {name: torch.cat(gs) for name, gs in gradients.items()},
    )


def likelihood_slope(
    head: Callable[[Tensor], Tensor], hidden: Tensor, uniforms: Tensor, temperature: float
) -> Tensor:
    """The gradient [n, d] of ``temperature log p`` of a drawn token, in each hidden state [n, d].

    uniforms: [n], in [0, 1): the first token is drawn whose cumulative probability exceeds it.
    """
    slopes = []
    pieces = hidden.detach()
    rows = max(1, _LOGITS_AT_ONCE // int(head(pieces[:1]).shape[-1]))
    for piece, uniform in zip(pieces.split(rows), uniforms.split(rows), strict=True):
        leaf = piece.clone().requires_grad_()
        with torch.enable_grad():
            logits = head(leaf)
        wide = logits.detach().to(torch.promote_types(logits.dtype, torch.float32)) / temperature
        p = wide.softmax(dim=1)
        mass = cumulative(p)
        uniform = uniform.to(mass)[:, None] * mass[:, -1:]
        token = torch.searchsorted(mass, uniform, right=True).clamp(max=p.shape[1] - 1)
        upward = (-p).scatter_add(1, token, torch.ones_like(uniform))
        slopes.append(torch.autograd.grad(logits, leaf, upward.to(logits.dtype))[0])
    return torch.cat(slopes)


@contextmanager
def _watched(modules: Mapping[str, nn.Module]) -> Iterator[dict[str, tuple[Tensor, Tensor]]]:
    """Within the block, record the input and output of every module's first pass, by name."""
    passed: dict[str, tuple[Tensor, Tensor]] = {}

    def watch(name: str) -> Callable[[nn.Module, Any, Tensor], None]:
        def hook(_: nn.Module, inputs: Any, output: Tensor) -> None:
            if name not in passed:  # a checkpointed block is run again
                passed[name] = (inputs[0], output)

        return hook

    with ExitStack() as hooks:
        for name, module in modules.items():
            hooks.enter_context(module.register_forward_hook(watch(name)))
        yield passed
