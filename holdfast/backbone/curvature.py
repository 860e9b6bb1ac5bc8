"""What the trained model is asked about its inputs: Kronecker factors, and mean inputs of its maps.

:mod:`holdfast.model.curvature` says what the factors are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from holdfast.backbone.sequences import batches_by_length, pad_right
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
# Of the input, the output and its gradient of every map, which are held for the tokens of a batch.
BYTES_AT_ONCE = 2**30


class States(Protocol):
    """A model whose last hidden states, and the logits of these, can be had."""

    @property
    def device(self) -> torch.device: ...

    def hidden(self, ids: Tensor, mask: Tensor | None = None, /) -> Tensor: ...

    def logits(self, hidden: Tensor, /) -> Tensor: ...


def curvature_of(
    model: States,
    layers: Mapping[str, LoraFactors],
    sequences: Sequence[Sequence[int]],
    config: CurvatureConfig,
    draw: tuple[int, str, int],
    labels: Sequence[Sequence[int]] | None = None,
) -> dict[str, KroneckerFactors]:
    """S and G of every adapted map, means over all predicting positions of ``sequences``.

    At every position a token is drawn from the model's whole distribution, which gives the true
    Fisher information, not the empirical one; the sequences' own tokens serve as context only.
    model: in evaluation mode, with gradients in the factors; draw: the seed and the names of the
    draws; labels: of the sequences' tokens; one with -100 weighs ``config.questions``.
    """
    precision = torch.promote_types(next(iter(layers.values())).lora_A.dtype, torch.float32)
    sums = MomentSums(config.exact_up_to, config.eigenpairs, precision, draw[0])
    # With fewer sequences than processes all compute all, and the mean is the same.
    count = len(sequences)
    own = rank_indices(count) if count >= world_size() else range(count)
    rows = (one for one, _ in _rows(model, layers, sequences, config, draw, labels, own))
    modules = {name: layer.module for name, layer in layers.items()}
    return kronecker_factors(model.hidden, model.logits, modules, rows, sums, config.temperature)


def positions_of(
    model: States,
    layers: Mapping[str, LoraFactors],
    sequences: Sequence[Sequence[int]],
    config: CurvatureConfig,
    draw: tuple[int, str, int],
    labels: Sequence[Sequence[int]] | None,
    count: int,
) -> Positions:
    """x and g of every adapted map at ``count`` predicting positions, drawn uniformly, or at all.

    Every process has those of the first. The rest as of :func:`curvature_of`.
    """
    counts = [len(one) - 1 for one in sequences]
    name = (draw[0], f"{draw[1]} positions", draw[2])
    keys = torch.rand(sum(counts), generator=generator(*name), dtype=torch.float64)
    most = float(keys.sort().values[min(count, len(keys)) - 1])
    each = keys.split(counts)
    modules = {name: layer.module for name, layer in layers.items()}

    def batches() -> Iterator[tuple[Rows, Tensor]]:
        given = (model, layers, sequences, config, draw, labels, range(len(sequences)))
        for rows, chosen in _rows(*given):
            drawn = torch.ones(rows.uniforms.shape, dtype=torch.float64)
            for row, index in enumerate(chosen):
                drawn[row, : counts[index]] = each[index]
            yield rows, drawn.to(model.device)

    found = positions_at(model.hidden, model.logits, modules, batches(), most, config.temperature)
    # Another rounding may draw another token, and so another g.
    for tensor in (*found.inputs.values(), *found.gradients.values()):
        broadcast_(tensor)
    return found


def _rows(
    model: States,
    layers: Mapping[str, LoraFactors],
    sequences: Sequence[Sequence[int]],
    config: CurvatureConfig,
    draw: tuple[int, str, int],
    labels: Sequence[Sequence[int]] | None,
    own: Iterable[int],
) -> Iterator[tuple[Rows, list[int]]]:
    """Batches of the sequences ``own``, with their numbers."""
    counts = [len(one) - 1 for one in sequences]
    uniforms = torch.rand(sum(counts), generator=generator(*draw)).split(counts)
    precision = torch.promote_types(next(iter(layers.values())).lora_A.dtype, torch.float32)
    for chosen in batches_by_length(counts, own, tokens_at_once(layers)):
        ids, mask = pad_right([sequences[index] for index in chosen], 0, model.device)
        drawn = torch.zeros(len(chosen), ids.shape[1] - 1)
        for row, index in enumerate(chosen):
            drawn[row, : counts[index]] = uniforms[index]
        weights = torch.ones(drawn.shape, dtype=precision, device=model.device)
        if labels is not None:
            given, _ = pad_right([labels[index] for index in chosen], -100, model.device)
            # An outer product of two gradients.
            weights[given[:, 1:] == -100] = config.questions**0.5
        yield Rows(ids, mask, drawn.to(model.device), weights), list(chosen)


def tokens_at_once(layers: Mapping[str, LoraFactors]) -> int:
    """The tokens of a batch for which all that is held of the maps has its bound."""
    held = 0
    for layer in layers.values():
        d_in, d_out = layer.lora_A.shape[1], layer.lora_B.shape[0]
        held += (d_in + 2 * d_out) * layer.lora_A.element_size()
    return max(1, min(TOKENS_AT_ONCE, BYTES_AT_ONCE // max(1, held)))


@torch.no_grad()
def mean_inputs(
    model: States,
    layers: Mapping[str, LoraFactors],
    sequences: Sequence[Sequence[int]],
    size: int,
    pad: int = 0,
) -> dict[str, Tensor]:
    """The mean input [d_in] of every adapted map over sequences, in evaluation mode.

    size: sequences in a batch; padded positions count, and every batch has the same weight.
    Source: eq. app-osrm-feature.
    """
    means: dict[str, list[Tensor]] = {name: [] for name in layers}

    def watch(name: str) -> Callable[[nn.Module, Any], None]:
        def hook(_: nn.Module, given: Any) -> None:
            rows = given[0].flatten(0, -2)
            means[name].append(rows.to(torch.promote_types(rows.dtype, torch.float32)).mean(0))

        return hook

    handles = [
        layer.module.register_forward_pre_hook(watch(name)) for name, layer in layers.items()
    ]
    try:
        for start in range(0, len(sequences), size):
            ids, mask = pad_right(sequences[start : start + size], pad, model.device)
            model.hidden(ids, mask.long())
    finally:
        for handle in handles:
            handle.remove()
    return {name: torch.stack(one).mean(0) for name, one in means.items()}
