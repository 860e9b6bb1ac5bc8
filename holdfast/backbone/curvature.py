"""Kronecker factors and mean inputs of the adapted maps of a model, on given sequences.

:mod:`holdfast.model.curvature` defines the factors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from holdfast.backbone.sequences import batches_by_length, pad_right
from holdfast.core.errors import HoldfastError
from holdfast.core.processes import broadcast_, rank_indices, world_size
from holdfast.core.seeding import generator
from holdfast.model.curvature import (
    CurvatureConfig,
    KroneckerFactors,
    Positions,
    Rows,
    kronecker_factors,
    positions_at,
)
from holdfast.model.lora import LoraFactors
from holdfast.model.moments import MomentSums

TOKENS_AT_ONCE = 4096
# Bounds the input, output and output gradient of every map, which are kept for a batch's tokens.
BYTES_AT_ONCE = 2**30


class States(Protocol):
    """A model that gives its last hidden states, and the logits of these."""

    @property
    def device(self) -> torch.device: ...

    def hidden(self, ids: Tensor, mask: Tensor | None = None, /) -> Tensor: ...

    def logits(self, hidden: Tensor, /) -> Tensor: ...


@dataclass(frozen=True)
class CurvatureData:
    """The model, sequences and settings of a measurement of curvature.

    model: in evaluation mode, with gradients in the factors; draw: the seed and the names of the
    draws; labels: of the sequences' tokens; a token with -100 has the weight ``config.questions``.
    """

    model: States
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
    def modules(self) -> dict[str, nn.Module]:
        """The adapted maps."""
        return {name: layer.module for name, layer in self.layers.items()}

    @property
    def precision(self) -> torch.dtype:
        """The type of sums and weights."""
        return torch.promote_types(next(iter(self.layers.values())).lora_A.dtype, torch.float32)

    def rows(self, chosen: Iterable[int]) -> Iterator[tuple[Rows, list[int]]]:
        """Yield batches of the ``chosen`` sequences, with their indices."""
        device, counts = self.model.device, self.counts
        uniforms = torch.rand(sum(counts), generator=generator(*self.draw)).split(counts)
        for batch in batches_by_length(counts, chosen, tokens_at_once(self.layers)):
            ids, mask = pad_right([self.sequences[index] for index in batch], 0, device)
            drawn = pad_sequence([uniforms[index] for index in batch], batch_first=True)
            weights = torch.ones(drawn.shape, dtype=self.precision, device=device)
            if self.labels is not None:
                labels, _ = pad_right([self.labels[index] for index in batch], -100, device)
                # G is quadratic in the gradients that are weighted.
                weights[labels[:, 1:] == -100] = self.config.questions**0.5
            yield Rows(ids, mask, drawn.to(device), weights), batch


def curvature_of(data: CurvatureData) -> dict[str, KroneckerFactors]:
    """S and G of every adapted map, means over all predicting positions of the sequences.

    At every position a token is drawn from the model's whole distribution, which gives the true
    Fisher information, not the empirical one; the sequences' own tokens serve as context only.
    """
    model, config, count = data.model, data.config, len(data.sequences)
    sums = MomentSums(config.exact_up_to, config.eigenpairs, data.precision, data.draw[0])
    # With fewer sequences than processes, each computes all, which gives the same mean.
    chosen = rank_indices(count) if count >= world_size() else range(count)
    batches = (rows for rows, _ in data.rows(chosen))
    return kronecker_factors(
        model.hidden, model.logits, data.modules, batches, sums, config.temperature
    )


def positions_of(data: CurvatureData, count: int) -> Positions:
    """x and g of every adapted map at ``count`` predicting positions, drawn uniformly, or at all.

    Tokens are drawn as in :func:`curvature_of`. Every process returns what the first computed.
    """
    model, counts = data.model, data.counts
    seed, purpose, task = data.draw
    source = generator(seed, f"{purpose} positions", task)
    keys = torch.rand(sum(counts), generator=source, dtype=torch.float64)
    most = float(keys.sort().values[min(count, len(keys)) - 1])
    each = keys.split(counts)

    def batches() -> Iterator[tuple[Rows, Tensor]]:
        for rows, batch in data.rows(range(len(counts))):
            yield rows, pad_sequence([each[index] for index in batch], batch_first=True)

    positions = positions_at(
        model.hidden, model.logits, data.modules, batches(), most, data.config.temperature
    )
    # Processes may round differently, and so draw other tokens and compute another g.
    for tensor in (*positions.inputs.values(), *positions.gradients.values()):
        broadcast_(tensor)
    return positions


def tokens_at_once(layers: Mapping[str, LoraFactors]) -> int:
    """The tokens of a batch for which the maps keep at most ``BYTES_AT_ONCE``."""
    bytes_per_token = 0
    for layer in layers.values():
        d_in, d_out = layer.lora_A.shape[1], layer.lora_B.shape[0]
        bytes_per_token += (d_in + 2 * d_out) * layer.lora_A.element_size()
    return max(1, min(TOKENS_AT_ONCE, BYTES_AT_ONCE // max(1, bytes_per_token)))


@torch.no_grad()
def mean_inputs(
    model: States,
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
