"""Kronecker factors and mean inputs of the adapted maps of a model, on given sequences.

:mod:`holdfast.model.kronecker` defines the factors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from holdfast.core.errors import HoldfastError
from holdfast.core.processes import broadcast_, rank_indices, world_size
from holdfast.core.seeding import generator
from holdfast.model.generation.sampling import cumulative
from holdfast.model.kronecker import CurvatureConfig, KroneckerFactors, Positions
from holdfast.model.lora import LoraFactors
from holdfast.model.moments import MomentSum, MomentSums
from holdfast.model.projection import SplitModel
from holdfast.model.sequences import batches_by_length, pad_right

TOKENS_AT_ONCE = 4096
# Bounds the input, output and output gradient of every map, which are kept for a batch's tokens.
BYTES_AT_ONCE = 2**30
_LOGITS_AT_ONCE = 1 << 24


@dataclass(frozen=True)
class Rows:
    """A batch of sequences, padded on the right.

    indices: of the sequences; ids: [batch, length]; mask: [batch, length] bool, the real tokens;
    uniforms: [batch, length - 1] in [0, 1), which decide the token drawn at each predicting
    position; weights: of the same shape, the factor of each position's log-likelihood.
    """

    indices: Sequence[int]
    ids: Tensor
    mask: Tensor
    uniforms: Tensor
    weights: Tensor


@dataclass(frozen=True)
class CurvatureData:
    """The model, sequences and settings of a measurement of curvature.

    model: in evaluation mode, with gradients in the factors; draw: the seed and the names of the
    draws; labels: of the sequences' tokens; one with -100 has the weight ``config.questions``.
    """

    model: SplitModel
    layers: Mapping[str, LoraFactors]
    sequences: Sequence[Sequence[int]]
    config: CurvatureConfig
    draw: tuple[int, str, int]
    labels: Sequence[Sequence[int]] | None = None

    @property
    def counts(self) -> list[int]:
        """The predicting positions of each sequence."""
        return [len(sequence) - 1 for sequence in self.sequences]

    @property
    def precision(self) -> torch.dtype:
        """The type of sums and weights."""
        return torch.promote_types(next(iter(self.layers.values())).lora_A.dtype, torch.float32)

    def rows(self, chosen: Iterable[int]) -> Iterator[Rows]:
        """Yield batches of the ``chosen`` sequences."""
        device, counts = self.model.device, self.counts
        uniforms = torch.rand(sum(counts), generator=generator(*self.draw)).split(counts)
        for batch in batches_by_length(counts, tokens_that_fit(self.layers), chosen):
            ids, mask = pad_right([self.sequences[index] for index in batch], 0, device)
            drawn = pad_sequence([uniforms[index] for index in batch], batch_first=True)
            weights = torch.ones(drawn.shape, dtype=self.precision, device=device)
            if self.labels is not None:
                labels, _ = pad_right([self.labels[index] for index in batch], -100, device)
                # G is quadratic in the gradients that are weighted.
                weights[labels[:, 1:] == -100] = self.config.questions**0.5
            yield Rows(batch, ids, mask, drawn.to(device), weights)


def curvature_of(data: CurvatureData) -> dict[str, KroneckerFactors]:
    """S and G of every adapted map, means over all predicting positions of the sequences.

    At every position a token is drawn from the model's whole distribution, which gives the true
    Fisher information, not the empirical one; the sequences' own tokens serve as context only.
    Maps that read the same tensor share their S.
    """
    config, count = data.config, len(data.sequences)
    sums = MomentSums(config.exact_up_to, config.eigenpairs, data.precision, data.draw[0])
    inputs: dict[str, MomentSum] = {}
    outputs: dict[str, MomentSum] = {}
    readers: dict[str, str] = {}  # of each map, the first one that reads the same tensor
    # With fewer sequences than processes, each computes all, which gives the same mean.
    for rows in data.rows(rank_indices(count) if count >= world_size() else range(count)):
        first_of: dict[int, str] = {}
        for name, x, g in _passed(data, rows):
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


def positions_of(data: CurvatureData, count: int) -> Positions:
    """x and g of every adapted map at ``count`` predicting positions, drawn uniformly, or at all.

    Tokens are drawn as in :func:`curvature_of`. Every process returns what the first computed.
    """
    counts = data.counts
    seed, purpose, task = data.draw
    source = generator(seed, f"{purpose} positions", task)
    drawn = torch.rand(sum(counts), generator=source, dtype=torch.float64)
    most = float(drawn.sort().values[min(count, len(drawn)) - 1])
    each = drawn.split(counts)
    keys = []
    inputs: dict[str, list[Tensor]] = {name: [] for name in data.layers}
    gradients: dict[str, list[Tensor]] = {name: [] for name in data.layers}
    for rows in data.rows(range(len(counts))):
        padded = pad_sequence([each[index] for index in rows.indices], batch_first=True)
        padded = padded.to(rows.mask.device)
        chosen = rows.mask[:, 1:] & (padded <= most)
        if chosen.any():
            keys.append(padded[chosen])
            for name, x, g in _passed(data, rows):
                inputs[name].append(x[:, :-1][chosen])
                gradients[name].append(g[:, :-1][chosen])
    positions = Positions(
        torch.cat(keys),
        {name: torch.cat(xs) for name, xs in inputs.items()},
        {name: torch.cat(gs) for name, gs in gradients.items()},
    )
    # Processes may round differently, and so draw other tokens and compute another g.
    for tensor in (*positions.inputs.values(), *positions.gradients.values()):
        broadcast_(tensor)
    return positions


def _passed(data: CurvatureData, rows: Rows) -> list[tuple[str, Tensor, Tensor]]:
    """Each map's name, input and output gradient on one batch, [batch, length, d] each."""
    real = rows.mask[:, 1:]
    with torch.enable_grad(), _watched(data.layers) as passed:
        hidden = data.model.hidden(rows.ids, rows.mask)[:, :-1][real]
        uniforms, temperature = rows.uniforms[real], data.config.temperature
        slope = _likelihood_slope(data.model.logits, hidden, uniforms, temperature)
        slope = slope * rows.weights[real][:, None]
        missed = [name for name in data.layers if name not in passed]
        if missed:
            raise HoldfastError(f"{missed[0]} was not passed, so it has no curvature; adapt others")
        outputs = [passed[name][1] for name in data.layers]
        gradients = torch.autograd.grad((hidden * slope).sum(), outputs)
    shape = rows.ids.shape  # some modules are given all positions as rows
    # An input that is not detached would keep the graph in memory.
    return [
        (name, passed[name][0].detach().reshape(*shape, -1), gradient.reshape(*shape, -1))
        for name, gradient in zip(data.layers, gradients, strict=True)
    ]


def _likelihood_slope(
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
def _watched(layers: Mapping[str, LoraFactors]) -> Iterator[dict[str, tuple[Tensor, Tensor]]]:
    """Within the block, record the input and output of every map's first pass, by name."""
    passed: dict[str, tuple[Tensor, Tensor]] = {}

    def watch(name: str) -> Callable[[nn.Module, Any, Tensor], None]:
        def hook(_: nn.Module, inputs: Any, output: Tensor) -> None:
            if name not in passed:  # a checkpointed block is run again
                passed[name] = (inputs[0], output)

        return hook

    with ExitStack() as hooks:
        for name, layer in layers.items():
            hooks.enter_context(layer.module.register_forward_hook(watch(name)))
        yield passed


def tokens_that_fit(layers: Mapping[str, LoraFactors]) -> int:
    """The tokens of a batch for which the maps keep at most ``BYTES_AT_ONCE``."""
    bytes_per_token = 0
    for layer in layers.values():
        d_in, d_out = layer.lora_A.shape[1], layer.lora_B.shape[0]
        bytes_per_token += (d_in + 2 * d_out) * layer.lora_A.element_size()
    return max(1, min(TOKENS_AT_ONCE, BYTES_AT_ONCE // max(1, bytes_per_token)))


@torch.no_grad()
def mean_inputs(
    model: SplitModel,
    layers: Mapping[str, LoraFactors],
    sequences: Sequence[Sequence[int]],
    size: int,
    pad: int = 0,
) -> dict[str, Tensor]:
    """The mean input [d_in] of every adapted map over sequences, in evaluation mode.

    size: sequences per batch; padded positions count, and every batch has the same weight.
    Source: eq. app-osrm-feature.
    """
    means: dict[str, list[Tensor]] = {name: [] for name in layers}

    def watch(name: str) -> Callable[[nn.Module, Any], None]:
        def hook(_: nn.Module, inputs: Any) -> None:
            rows = inputs[0].flatten(0, -2)
            means[name].append(rows.to(torch.promote_types(rows.dtype, torch.float32)).mean(0))

        return hook

    with ExitStack() as hooks:
        for name, layer in layers.items():
            hooks.enter_context(layer.module.register_forward_pre_hook(watch(name)))
        for start in range(0, len(sequences), size):
            ids, mask = pad_right(sequences[start : start + size], pad, model.device)
            model.hidden(ids, mask.long())
    if missed := [name for name, of_batches in means.items() if not of_batches]:
        raise HoldfastError(f"{missed[0]} was not passed, so it has no mean input; adapt others")
    return {name: torch.stack(of_batches).mean(0) for name, of_batches in means.items()}
