"""Attach PEFT's LoRA layers to a model, switch them on and off, copy and load their factors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from peft import LoraConfig, inject_adapter_in_model
from peft.tuners.lora import LoraLayer
from transformers.pytorch_utils import Conv1D

from holdfast.model.layers import layer_of, maps_of_layers
from holdfast.model.lora import lora_layers, parameters_of

State = dict[str, torch.Tensor]  # "<module>.lora_A" [r, d_in], "<module>.lora_B" [d_out, r]
_NAME = "default"
_A = ".lora_A"


@dataclass(frozen=True)
class AdapterShape:
    """Where LoRA layers sit and how large they are.

    modules: full names of the adapted maps, sorted; transposed: whether these store their matrices
    as [d_in, d_out], as GPT-2's do.
    """

    modules: tuple[str, ...]
    rank: int
    alpha: int
    transposed: bool = False

    @property
    def scale(self) -> float:
        """The factor of an update: alpha / r."""
        return self.alpha / self.rank

    def config(self, invocation: Sequence[int] | None = None) -> LoraConfig:
        """PEFT's configuration, of an activated adapter if there are invocation tokens."""
        return LoraConfig(
            r=self.rank,
            lora_alpha=self.alpha,
            target_modules=list(self.modules),
            fan_in_fan_out=self.transposed,
            task_type="CAUSAL_LM",
            alora_invocation_tokens=list(invocation) if invocation else None,
        )


def shape_on(model: Any, first: int, rank: int, alpha: int) -> AdapterShape:
    """The shape that adapts all linear maps of the decoder layers from number ``first`` on."""
    modules = sorted(name for name in maps_of_layers(model) if layer_of(name) >= first)
    return _shape(model, modules, rank, alpha)


def shape_like(model: Any, state: State, scale: float) -> AdapterShape:
    """The shape of the adapter that has this state; scale: alpha / r."""
    modules = sorted(name.removesuffix(_A) for name in state if name.endswith(_A))
    rank = len(state[f"{modules[0]}{_A}"])
    return _shape(model, modules, rank, round(rank * scale))


def _shape(model: Any, modules: list[str], rank: int, alpha: int) -> AdapterShape:
    first = model.get_submodule(modules[0])
    if isinstance(first, LoraLayer):
        first = first.get_base_layer()
    return AdapterShape(tuple(modules), rank, alpha, transposed=isinstance(first, Conv1D))


def attach(model: Any, shape: AdapterShape) -> None:
    """Put disabled LoRA layers on a model that has none."""
    inject_adapter_in_model(shape.config(), model, _NAME)
    _switch(model, on=False)


def detach(model: Any) -> None:
    """Remove the LoRA layers; the linear maps are the same objects as before."""
    for name, module in list(model.named_modules()):
        if isinstance(module, LoraLayer):
            parent, _, attribute = name.rpartition(".")
            setattr(model.get_submodule(parent), attribute, module.get_base_layer())
    with contextlib.suppress(AttributeError):  # PEFT's record of its adapters
        del model.peft_config


@contextlib.contextmanager
def adapted(model: Any) -> Iterator[None]:
    """Within the block the LoRA layers act and may be trained; then they are disabled again."""
    _switch(model, on=True)
    try:
        yield
    finally:
        _switch(model, on=False)


def _switch(model: Any, *, on: bool) -> None:
    # PEFT's own switch also decides which factors require a gradient.
    for module in model.modules():
        if isinstance(module, LoraLayer):
            module.enable_adapters(on)


def factors(model: Any) -> State:
    """The live factors of every adapted map, ``lora_A`` before ``lora_B``."""
    return parameters_of(lora_layers(model, _NAME))


def reset(model: Any, generator: torch.Generator) -> None:
    """Draw ``lora_A`` anew (standard deviation 1/sqrt(d_in)) and set ``lora_B`` to zero."""
    with torch.no_grad():
        for layer in lora_layers(model, _NAME).values():
            drawn = torch.randn(layer.lora_A.shape, generator=generator)
            layer.lora_A.copy_(drawn / layer.lora_A.shape[1] ** 0.5)
            layer.lora_B.zero_()


def state_of(model: Any, dtype: torch.dtype = torch.float32) -> State:
    """Copy all factors."""
    return {name: part.detach().to(dtype, copy=True) for name, part in factors(model).items()}


def load_state(model: Any, state: Mapping[str, torch.Tensor]) -> None:
    """Copy a state of the same shape into the factors; KeyError if a factor is missing."""
    with torch.no_grad():
        for name, part in factors(model).items():
            part.copy_(state[name])
