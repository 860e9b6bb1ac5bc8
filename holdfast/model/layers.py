"""The decoder layers of a model: their linear maps, which of them LoRA adapts, their context."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from pydantic import Field, NonNegativeInt
from torch import nn
from transformers import DynamicCache
from transformers.pytorch_utils import Conv1D

from holdfast.core.config import Config
from holdfast.core.errors import HoldfastError

PAPER_TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


class LoraSettings(Config):
    """PEFT's LoRA layers, as in tab:implementation-hparams.

    targets: the last parts of the names of the adapted maps. layers: the numbers of the adapted
    layers, from 0; null adapts all. merge_precision: of the matrices to which updates are added;
    ``model`` rounds every sum to the model's precision.
    """

    rank: int = Field(32, ge=1)  # r
    alpha: float = Field(64.0, gt=0)  # alpha_LoRA; an update is scaled by rho = alpha / r
    dropout: float = Field(0.05, ge=0, lt=1)
    targets: tuple[str, ...] | Literal["all-linear"] = PAPER_TARGETS
    layers: tuple[NonNegativeInt, ...] | None = Field(None, min_length=1)
    merge_precision: Literal["float32", "model"] = "float32"


def target_maps(model: Any, settings: LoraSettings) -> dict[str, Any]:
    """The linear maps to adapt, by name; never the output head or a map that reads images.

    Raises HoldfastError if no map has a target's name, one of the chosen layers has no such map, or
    the rank exceeds the smaller side of a map.
    """
    head, targets = model.get_output_embeddings(), settings.targets
    reads_text = set(text_part(model).modules())
    maps = {
        name: module
        for name, module in model.named_modules()
        if module is not head
        and module in reads_text
        and isinstance(module, nn.Linear | Conv1D)
        and (targets == "all-linear" or name.rpartition(".")[2] in targets)
    }
    if not maps:
        named = ", ".join(targets) or "by an empty list"
        raise HoldfastError(
            f"lora.targets: no linear map of this backbone is named {named}; name its own, or use "
            "lora.targets=all-linear"
        )
    if settings.layers is not None:
        layers = {layer_of(name) for name in maps}
        if missing := [str(layer) for layer in settings.layers if layer not in layers]:
            last = max(layers)
            has = f"the last is {last}" if last >= 0 else "its layers have no numbers"
            raise HoldfastError(
                f"lora.layers: no map of layer {', '.join(missing)} is adapted in this backbone; "
                f"{has}"
            )
        maps = {name: module for name, module in maps.items() if layer_of(name) in settings.layers}
    widths = {name: _width(module) for name, module in maps.items()}
    narrowest = min(widths, key=lambda name: widths[name])
    if settings.rank > widths[narrowest]:
        raise HoldfastError(
            f"lora.rank = {settings.rank} exceeds the rank of {narrowest}, {widths[narrowest]}; "
            "lower it or leave the map out of lora.targets"
        )
    return maps


def text_part(model: Any) -> Any:
    """The decoder of a model that also has layers for images; else the model itself."""
    config = getattr(model, "config", None)
    return model if config is None or config.get_text_config() is config else model.get_decoder()


def context_of(config: Any) -> int | None:
    """The most tokens of a sequence; None if the configuration sets no limit.

    config: of transformers; if it has one part for text and one for images, the text's counts.
    """
    limit: int | None = getattr(config.get_text_config(), "max_position_embeddings", None)
    return limit or None


def layer_of(name: str) -> int:
    """The number of a map's layer: the first number in its name, -1 if it has none."""
    return next((int(part) for part in name.split(".") if part.isdecimal()), -1)


def _width(module: Any) -> int:
    """The smaller side of a map's matrix."""
    if isinstance(module, Conv1D):
        return int(min(module.weight.shape))
    return int(min(module.in_features, module.out_features))


def keeps_keys_and_values(model: Any) -> bool:
    """Whether every layer of a model caches keys and values, so that none is recurrent."""
    layers = DynamicCache(config=model.config.get_text_config()).layers
    return not getattr(model, "_is_stateful", False) and all(
        hasattr(layer, "keys") for layer in layers
    )


def maps_of_layers(model: Any) -> list[str]:
    """The names of the linear maps in a model's decoder layers, in the model's order."""
    name, layers = _decoder_layers(model)
    return [
        f"{name}.{inner}"
        for inner, module in layers.named_modules()
        if isinstance(module, nn.Linear | Conv1D)
    ]


def _decoder_layers(model: Any) -> tuple[str, nn.ModuleList]:
    """The name of a model's list of decoder layers, and the list; an empty one if none is found."""
    count = getattr(model.config.get_text_config(), "num_hidden_layers", None)
    reads_text = set(text_part(model).modules())
    for name, module in model.named_modules():
        if isinstance(module, nn.ModuleList) and len(module) == count and module in reads_text:
            return name, module
    return "", nn.ModuleList()


@contextmanager
def shallow(model: Any, count: int) -> Iterator[None]:
    """Within the block, cut the model to its first ``count`` decoder layers."""
    name, layers = _decoder_layers(model)
    parent_name, _, attribute = name.rpartition(".")
    parent = model.get_submodule(parent_name)
    setattr(parent, attribute, layers[:count])
    try:
        yield
    finally:
        setattr(parent, attribute, layers)


@contextmanager
def plain_attention(model: Any) -> Iterator[None]:
    """Within the block, attention is plain products (transformers' ``eager``)."""
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        yield
    finally:
        model.set_attn_implementation(before)
