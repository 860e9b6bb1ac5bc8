"""Kronecker factors of a model's Fisher information, on given sequences.

For one linear map ``y = W x`` and one position of a sequence, the gradient of the log-likelihood in
W is ``g x^T``, g being that in y. Over positions, sequences and tokens drawn from the model's own
distribution the Fisher information of W is ``E[x x^T (x) g g^T]``, products of two positions of one
sequence left out, and ``S (x) G`` approximates it: ``S = E[x x^T]`` and ``G = E[g g^T]``.
Source: Martens & Grosse 2015, "Optimizing Neural Networks with Kronecker-factored Approximate
Curvature"; Ritter et al. 2018, "Online Structured Laplace Approximations".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from pydantic import Field
from torch import Tensor

from holdfast.backbone.adapters.workspace import Adapters
from holdfast.backbone.generation.nucleus import nucleus_sample
from holdfast.backbone.model import Backbone
from holdfast.backbone.moments import Moment, MomentSum, MomentSums, moment_of
from holdfast.backbone.sequences import Batch, collate
from holdfast.core.config import Config
from holdfast.core.processes import mine
from holdfast.core.seeding import generator

TOKENS_AT_ONCE = 4096
_LOGITS_AT_ONCE = 1 << 24


@dataclass(frozen=True)
class KroneckerFactors:
    """Of one map. inputs: S, of its inputs x, [d_in, d_in]; outputs: G, of the gradients g."""

    inputs: Moment
    outputs: Moment


Curvature = Mapping[str, KroneckerFactors]


def mixed(
    past: Curvature, new: Curvature, decay: float, device: torch.device
) -> dict[str, KroneckerFactors]:
    """``decay past + (1 - decay) new``, of S and of G of every map, on ``device``."""

    def mix(one: Moment, other: Moment) -> Moment:
        here, there = (_placed(part, lambda tensor: tensor.to(device)) for part in (one, other))
        return here.mixed(there, decay)

    inputs: dict[int, Moment] = {}  # maps that read one tensor share their S
    found = {}
    for name, factors in new.items():
        known = id(factors.inputs)
        if known not in inputs:
            inputs[known] = mix(past[name].inputs, factors.inputs)
        found[name] = KroneckerFactors(inputs[known], mix(past[name].outputs, factors.outputs))
    return found


def placed(curvature: Curvature, place: Callable[[Tensor], Tensor]) -> dict[str, KroneckerFactors]:
    """Every tensor through ``place``, which may copy it to another device."""
    inputs: dict[int, Moment] = {}
    found = {}
    for name, factors in curvature.items():
        known = id(factors.inputs)
        if known not in inputs:
            inputs[known] = _placed(factors.inputs, place)
        found[name] = KroneckerFactors(inputs[known], _placed(factors.outputs, place))
    return found


def _placed(moment: Moment, place: Callable[[Tensor], Tensor]) -> Moment:
    return moment_of({key: place(part) for key, part in moment.parts().items()})


def named(curvature: Curvature) -> dict[str, Tensor]:
    """As named tensors for a file; S of maps that read one tensor stands there once.

    The keys are ``S MAP``, ``G MAP``, with a part's name behind the letter, and ``S=FIRST MAP``.
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
    """The inverse of :func:`named`, in any order; KeyError when one is missing or unknown."""
    parts: dict[tuple[str, str], dict[str, Tensor]] = {}
    firsts: dict[str, str] = {}
    for key, tensor in tensors.items():
        kind, _, name = key.partition(" ")
        if kind.startswith("S="):
            firsts[name] = kind.removeprefix("S=")
        else:
            parts.setdefault((kind[:1], name), {})[kind[1:]] = tensor
    moments = {place: moment_of(found) for place, found in parts.items()}
    names = [name for letter, name in moments if letter == "G"]
    wanted = {("S", firsts.get(n, n)) for n in names} | {("G", n) for n in names}
    if moments.keys() != wanted or not {*firsts, *firsts.values()} <= {*names}:
        raise KeyError(f"the tensors {sorted(tensors)} are no curvature")
    return {
        name: KroneckerFactors(moments["S", firsts.get(name, name)], moments["G", name])
        for name in names
    }


class CurvatureConfig(Config):
    """How curvature is taken.

    temperature: of both distributions of the divergence that is expanded to second order, like
    tau_D of the replay loss; at 1 a confident answer has almost no curvature. questions: the weight
    of a question's token beside 1 for an answer's, where the two are told apart. exact_up_to,
    eigenpairs: S and G are exact up to this width; wider ones keep as many approximate eigenpairs
    and an isotropic rest of the same trace.
    """

    temperature: float = Field(1.0, gt=0)
    questions: float = Field(1.0, ge=0)
    exact_up_to: int = Field(2048, ge=0)
    eigenpairs: int = Field(64, ge=0)


def curvature_of(
    backbone: Backbone,
    sequences: Sequence[Sequence[int]],
    config: CurvatureConfig,
    draw: tuple[int, str, int],
    prompts: Sequence[int] = (),
) -> dict[str, KroneckerFactors]:
    """S and G of every adapted map, means over all predicting positions of ``sequences``.

    At every position a token is drawn from the model's whole distribution, which gives the true
    Fisher information, not the empirical one; the sequences' own tokens serve as context
    only. draw: the seed and the names of the draws; prompts: how many tokens of each sequence
    are its question.
    """
    adapters = backbone.adapters
    sums = MomentSums(config.exact_up_to, config.eigenpairs, adapters.dtype, draw[0])
    counts = [len(sequence) - 1 for sequence in sequences]
    # With top_p = 1 the first candidate is always inside.
    noise = torch.rand(sum(counts), 1, generator=generator(*draw))
    of_sequence = noise.split(counts)
    weights = [torch.ones(count, 1) for count in counts]
    for weight, prompt in zip(weights, prompts, strict=False):
        weight[: max(0, prompt - 1)] = config.questions**0.5  # an outer product of two gradients
    with backbone.answering(), torch.enable_grad(), _recording(adapters, sums) as recorder:
        for chosen in _batches(counts, mine(len(counts))):
            batch = collate([sequences[index] for index in chosen], backbone.device)
            drawn_by = torch.cat([of_sequence[index] for index in chosen]).to(backbone.device)
            recorder.batch = None if backbone.decoder is not None else batch
            passed = backbone.forward_pass(batch)
            (states,) = passed.states
            slope = _log_likelihood_slope(backbone, states.detach(), drawn_by, config.temperature)
            slope *= torch.cat([weights[index] for index in chosen]).to(backbone.device)
            passed.backward(((states * slope).sum(), torch.zeros_like(adapters.gradient)))
    return recorder.factors()


def _batches(counts: Sequence[int], of: Sequence[int]) -> Iterator[list[int]]:
    """Indices among ``of``, sequences of similar length, few enough for one pass."""
    left = sorted(of, key=lambda index: counts[index])
    while left:
        rows = max(1, TOKENS_AT_ONCE // max(1, counts[left[-1]]))
        yield left[-rows:]
        left = left[:-rows]


def _log_likelihood_slope(
    backbone: Backbone, states: Tensor, noise: Tensor, temperature: float
) -> Tensor:
    """The gradient in the states, [n, d], of the log-likelihood of one drawn token a row."""
    slope = torch.empty_like(states)
    rows = max(1, _LOGITS_AT_ONCE // int(backbone.head.weight.shape[0]))
    for start in range(0, len(states), rows):
        piece = states[start : start + rows].requires_grad_()
        with torch.enable_grad():
            # torch's operation counter cannot watch leaves under `autograd.grad`.
            piece = piece.view_as(piece)
            logits = backbone.logits(piece)
        wide = logits.detach().to(torch.promote_types(logits.dtype, torch.float32)) / temperature
        drawn = nucleus_sample(wide, noise[start : start + rows], 1.0, None, fused=backbone.fused)
        into = -wide.softmax(dim=1)
        chosen = drawn[:, None]
        into.scatter_(1, chosen, into.gather(1, chosen) + 1)
        (slope[start : start + rows],) = torch.autograd.grad(logits, piece, into.to(logits.dtype))
    return slope


def curvature_numbers(readers: Iterable[tuple[int, Sequence[int]]], config: CurvatureConfig) -> int:
    """How many numbers S and G of adapted maps have; maps that read one tensor share their S.

    readers: of each tensor that maps read, d_in and the d_out of each of them.
    """
    sums = MomentSums(config.exact_up_to, config.eigenpairs, torch.float32, seed=0)
    return sum(sums.numbers(d_in) + sum(map(sums.numbers, widths)) for d_in, widths in readers)


class _Recorder:
    """Second moments of the inputs and output gradients of groups of maps that read one tensor.

    batch: set where the rows are its padded grid, so that padding is left out.
    """

    def __init__(self, adapters: Adapters, sums: MomentSums) -> None:
        self.batch: Batch | None = None
        self._inputs: dict[int, MomentSum] = {}
        self._outputs: dict[str, MomentSum] = {}
        self._groups = adapters.groups
        self._names = {id(layer): name for name, layer in adapters.layers.items()}
        for number, group in enumerate(self._groups):
            device = adapters.gradient.device
            first = group.maps[0]
            name = self._names[id(first)]
            self._inputs[number] = sums.new(first.down.shape[1], device, f"{name} inputs")
            for one in group.maps:
                name = self._names[id(one)]
                self._outputs[name] = sums.new(len(one.up), device, f"{name} outputs")

    def inputs(self, group: int, rows: Tensor) -> None:
        """x of one group, [n, d_in]."""
        self._inputs[group].add(self._real(rows))

    def outputs(self, group: int, upstream: Tensor) -> None:
        """The gradients of its maps' outputs, side by side, [n, sum of d_out]."""
        maps, widths = self._groups[group].maps, self._groups[group].widths
        for one, piece in zip(maps, self._real(upstream).split(widths, dim=1), strict=True):
            self._outputs[self._names[id(one)]].add(piece)

    def _real(self, rows: Tensor) -> Tensor:
        if self.batch is None or self.batch.places is None:
            return rows
        return rows.index_select(0, self.batch.places)

    def factors(self) -> dict[str, KroneckerFactors]:
        """The means, by map."""
        found = {}
        for number, group in enumerate(self._groups):
            inputs = self._inputs[number].mean()
            for one in group.maps:
                name = self._names[id(one)]
                found[name] = KroneckerFactors(inputs, self._outputs[name].mean())
        return found


@contextmanager
def _recording(adapters: Adapters, sums: MomentSums) -> Iterator[_Recorder]:
    recorder = _Recorder(adapters, sums)
    for number, group in enumerate(adapters.groups):
        group.observe(
            lambda rows, number=number: recorder.inputs(number, rows),  # type: ignore[misc]
            lambda rows, number=number: recorder.outputs(number, rows),  # type: ignore[misc]
        )
    try:
        yield recorder
    finally:
        for group in adapters.groups:
            group.observe(None, None)
