"""Kronecker factors of a model's Fisher information; ``holdfast.model.curvature`` measures them.

Let ``y = W x`` be a linear map at one position of a sequence, and g the gradient of the
log-likelihood with respect to y. Then its gradient with respect to W is ``g x^T``. The mean over
positions, sequences and tokens drawn from the model's own distribution, ``E[x x^T (x) g g^T]``, is
the Fisher information of W without products of two positions of one sequence. ``S (x) G``
approximates it, with ``S = E[x x^T]`` and ``G = E[g g^T]``.
Source: Martens & Grosse 2015, "Optimizing Neural Networks with Kronecker-factored Approximate
Curvature"; Ritter et al. 2018, "Online Structured Laplace Approximations".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from pydantic import Field
from torch import Tensor

from holdfast.core.config import Config
from holdfast.model.moments import Moment, MomentSums, moment_of


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

    def placed(moment: Moment) -> Moment:
        return _mapped(moment, lambda tensor: tensor.to(device))

    inputs: dict[int, Moment] = {}  # by id: maps that read one tensor share their S
    mixture = {}
    for name, factors in new.items():
        key = id(factors.inputs)
        if key not in inputs:
            inputs[key] = placed(past[name].inputs).mixed(placed(factors.inputs), decay)
        outputs = placed(past[name].outputs).mixed(placed(factors.outputs), decay)
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
class Positions:
    """Positions of sequences, with the input and the output gradient of every adapted map.

    keys: [k], uniform random numbers; of several sets together those with the smallest keys are a
    uniform choice again; inputs: x of every map, [k, d_in]; gradients: g, [k, d_out].
    """

    keys: Tensor
    inputs: Mapping[str, Tensor]
    gradients: Mapping[str, Tensor]
