"""Additional neurons in gated MLPs: made, added by hooks, and made part of the model's matrices.

A gated MLP computes ``y = down(act(gate x) * up x)``. With further rows of gate and up, and columns
of down, it computes

    y + sum over neurons j of act(g_j . x) (u_j . x) d_j

and is a wider MLP of the same kind, so a model with them is a plain model again (:func:`widen`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from holdfast.core.errors import HoldfastError
from holdfast.model.layers import layer_of, maps_of_layers, shallow
from holdfast.model.reading import PromptReader, rows_by_length

# "<MLP>.gate", "<MLP>.up", "<MLP>.down": [neurons, d] each, the same number in every MLP.
Neurons = Mapping[str, torch.Tensor]
PARTS = ("gate", "up", "down")
_MAPS = ("gate_proj", "up_proj", "down_proj")
_SHRINKAGE = 1e-3  # of the moment's mean eigenvalue
FIRES, _SILENT = 12.0, 18.0  # the gate where a neuron fires, minus the gate elsewhere
_MULTIPLE = 32  # divides a widened MLP's width: the size of blocks in quantized formats


def gated_mlps(model: Any) -> list[str]:
    """The names of the MLPs of a model's decoder layers, one per layer, in order.

    Raises HoldfastError if a layer has no gated MLP of the model's width.
    """
    width = getattr(model.config.get_text_config(), "intermediate_size", None)
    parents = [name.rpartition(".")[0] for name in maps_of_layers(model)]
    mlps = [name for name in dict.fromkeys(parents) if _is_gated(model.get_submodule(name), width)]
    if len(mlps) != model.config.get_text_config().num_hidden_layers:
        raise HoldfastError(
            f"{type(model).__name__}: its MLPs are not gated ones (gate_proj, up_proj, down_proj) "
            "of one width, to which neurons could be added"
        )
    return mlps


@torch.no_grad()
def _is_gated(module: Any, width: Any) -> bool:
    """Whether a module is a gated MLP of this width; some with these names compute more."""
    maps: list[Any] = [getattr(module, name, None) for name in _MAPS]
    if not all(isinstance(part, nn.Linear) for part in maps) or not hasattr(module, "act_fn"):
        return False
    gate, up, down = maps
    x = torch.ones_like(gate.weight[:1])
    same = torch.allclose(module(x), down(module.act_fn(gate(x)) * up(x)), rtol=1e-3)
    return same and gate.out_features == width


@contextlib.contextmanager
def acting(model: Any, neurons: Neurons) -> Iterator[None]:
    """Within the block the neurons act, and may be trained."""
    names = {
        model.get_submodule(name.removesuffix(".gate")): name.removesuffix(".gate")
        for name in neurons
        if name.endswith(".gate")
    }

    def add(module: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> torch.Tensor:
        gate, up, down = (neurons[f"{names[module]}.{part}"] for part in PARTS)
        fired: torch.Tensor = module.act_fn(F.linear(inputs[0], gate)) * F.linear(inputs[0], up)
        return output + fired @ down

    with contextlib.ExitStack() as hooks:
        for module in names:
            hooks.enter_context(module.register_forward_hook(add))
        yield


def detectors(
    moment: torch.Tensor, total: torch.Tensor, means: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Gate and up of one neuron for each of some tokens: it fires there, and nowhere else.

    moment: the sum of x x^T over all inputs x of an MLP, [d, d]; total: the sum of x, [d]; means:
    its input m at each of the tokens, the mean over texts, [neurons, d]; all in float64.

        v = S^-1 m / (m^T S^-1 m),   c = S^-1 total,   up = v,   gate . m = 12,   gate = a v - 18 c

    v . x is 1 at m and least in mean square over all x (the key of an edit in Meng et al. 2022,
    2202.05262, 2210.07229); c . x is as near to 1 as possible for all x. So the neuron gives about
    12 at m. If v . x = 0, its gate is about -18, at which SiLU is -3e-7. With a gate of -6 SiLU
    would be -.015, and every neuron would add that to every token.
    """
    size = len(moment)
    shrunk = moment + _SHRINKAGE * moment.diagonal().mean() * torch.eye(size, dtype=moment.dtype)
    solved = torch.linalg.solve(shrunk, torch.cat([means, total[None]]).t()).t()
    constant = solved[-1]
    up = solved[:-1] / (solved[:-1] * means).sum(1, keepdim=True)
    gate = up * (FIRES + _SILENT * (means @ constant))[:, None] - _SILENT * constant
    return gate, up


@torch.no_grad()
def widen(model: Any, neurons: Neurons) -> None:
    """Make the neurons rows and columns of the model's own matrices, in place.

    A configuration has one width, so every MLP gets the same, a multiple of 32; the rest is zero.
    """
    config = model.config.get_text_config()
    count = len(next(iter(neurons.values())))
    width = -(-(config.intermediate_size + count) // _MULTIPLE) * _MULTIPLE
    for name in gated_mlps(model):
        mlp = model.get_submodule(name)
        more = width - config.intermediate_size
        for part, attribute in zip(PARTS, _MAPS, strict=True):
            module = getattr(mlp, attribute)
            weight = module.weight
            across = weight.t() if part == "down" else weight  # [neurons, d]
            rows = across.new_zeros(more, across.shape[1])
            if f"{name}.{part}" in neurons:
                rows[:count] = neurons[f"{name}.{part}"]
            across = torch.cat([across, rows])
            wider = (across.t() if part == "down" else across).contiguous()
            module.weight = nn.Parameter(wider, requires_grad=weight.requires_grad)
            module.out_features, module.in_features = wider.shape
            if module.bias is not None and part != "down":
                bias = torch.cat([module.bias, module.bias.new_zeros(more)])
                module.bias = nn.Parameter(bias, requires_grad=module.bias.requires_grad)
        if hasattr(mlp, "intermediate_size"):
            mlp.intermediate_size = width
    config.intermediate_size = width


@torch.no_grad()
def mlp_inputs(
    reader: PromptReader,
    mlps: Sequence[str],
    texts: Sequence[Sequence[int]],
    take: Callable[[int, dict[str, torch.Tensor], torch.Tensor], None],
    batch: int = 64,
    *,
    alone: bool = False,
) -> None:
    """Give the inputs of MLPs at every token of texts, and the residual stream, to ``take``.

    mlps: names; take: called with a text's index, the input [tokens, d] of each of the MLPs, and
    the residual stream [tokens, d] after the deepest one's layer; it must not use the model.
    alone: without the prefix. Of the layers above the deepest one's only the next is computed.
    """
    layer = 1 + max(map(layer_of, mlps))
    reader.ensure_prefix()  # before the model is cut
    modules = {reader.model.get_submodule(name): name for name in mlps}
    read: dict[str, torch.Tensor] = {}

    def keep(module: Any, inputs: tuple[torch.Tensor, ...]) -> None:
        read[modules[module]] = inputs[0]

    with contextlib.ExitStack() as stack:
        for module in modules:
            stack.enter_context(module.register_forward_pre_hook(keep))
        stack.enter_context(shallow(reader.model, layer + 1))
        for places in rows_by_length(list(map(len, texts)), batch):
            stream = reader.hidden([texts[place] for place in places], alone=alone)[layer]
            for row, place in enumerate(places):
                tokens = slice(len(texts[place]))
                inputs = {name: x[row, tokens] for name, x in read.items()}
                take(place, inputs, stream[row, tokens])
