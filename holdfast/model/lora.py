"""The LoRA layers of a PEFT model: the factors that anchors and allocation rules work on.

Nothing wraps the model. The factors are PEFT's own parameters, named by the path of their layer in
the base model, so that the same code serves this package's loop, a Trainer and a bare script.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from peft import LoraConfig, PeftModel, PeftType, get_peft_model
from peft.tuners.lora import LoraLayer
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from holdfast.core.errors import HoldfastError, reason_of
from holdfast.core.seeding import generator
from holdfast.model.layers import PAPER_TARGETS, LoraSettings, target_maps

logger = logging.getLogger(__name__)

_PLAIN = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def with_lora(model: Any, settings: LoraSettings) -> PeftModel:
    """A PEFT model around ``model``, whose target maps become LoRA layers with B = 0.

    Raises HoldfastError as :func:`target_maps` does, and if PEFT cannot adapt one of the maps.
    """
    maps = target_maps(model, settings)
    unused = {*settings.targets} - {name.rpartition(".")[2] for name in maps}
    if unused and settings.targets not in (PAPER_TARGETS, "all-linear"):
        logger.warning(
            "lora.targets: no adapted map of this backbone is named %s", ", ".join(sorted(unused))
        )
    config = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,  # type: ignore[arg-type]  # typed int, but only divided
        lora_dropout=settings.dropout,
        target_modules=list(maps),
        fan_in_fan_out=any(isinstance(module, Conv1D) for module in maps.values()),
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():  # PEFT's A is not used
        # PEFT 0.21 still reads an attribute that transformers 5.23 renamed.
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
        try:
            return get_peft_model(model, config)
        except ValueError as error:  # such as for maps that Mamba's layers never call
            reason = reason_of(error, 200)
            raise HoldfastError(
                f"lora.targets: PEFT does not adapt all maps that they name ({reason}); name others"
            ) from error


@dataclass(frozen=True)
class LoraFactors:
    """One adapted map, ``W + scale lora_B lora_A``: PEFT's layer and an adapter's name in it."""

    module: Any
    adapter: str

    @property
    def lora_A(self) -> Tensor:
        """The live parameter, [r, d_in]."""
        weight: Tensor = self.module.lora_A[self.adapter].weight
        return weight

    @property
    def lora_B(self) -> Tensor:
        """The live parameter, [d_out, r]."""
        weight: Tensor = self.module.lora_B[self.adapter].weight
        return weight

    @property
    def scale(self) -> float:
        """rho: alpha / r, or alpha / sqrt(r) with rsLoRA."""
        return float(self.module.scaling[self.adapter])

    def product(self) -> Tensor:
        """``lora_B lora_A`` [d_out, d_in], in float32 at least, even under autocast."""
        wide = torch.promote_types(self.lora_B.dtype, torch.float32)
        with torch.autocast(self.lora_B.device.type, enabled=False):
            return self.lora_B.to(wide) @ self.lora_A.to(wide)

    @property
    def weight(self) -> Tensor:
        """The live frozen matrix: [d_out, d_in], but [d_in, d_out] in GPT-2's layers."""
        weight: Tensor = self.module.get_base_layer().weight
        return weight


def lora_layers(model: Any, adapter: str) -> dict[str, LoraFactors]:
    """The maps that an adapter of a model is on, by name."""
    return {
        name: LoraFactors(module, adapter)
        for name, module in model.named_modules()
        if isinstance(module, LoraLayer) and adapter in module.lora_A
    }


def parameters_of(layers: Mapping[str, LoraFactors]) -> dict[str, Tensor]:
    """The live factors of adapted maps: ``MODULE.lora_A`` and ``MODULE.lora_B``."""
    return {
        f"{name}.{part}": getattr(layer, part)
        for name, layer in layers.items()
        for part in ("lora_A", "lora_B")
    }


class LoraWorkspace:
    """The trainable factors of a PEFT model, and its frozen matrices.

    layers: the adapted maps by name, such as ``model.layers.0.self_attn.q_proj``.
    """

    def __init__(
        self, model: Any, *, more: Mapping[str, nn.Parameter] | None = None, masters: bool = True
    ) -> None:
        """model: with one active LoRA adapter; more: other trainable parameters, by name.

        masters: whether half-precision matrices get float32 copies when updates are merged into
        them. Raises HoldfastError if the model has no such adapter or is compiled, if something
        else is trained, or if the update is not ``B A``.
        """
        if hasattr(model, "_orig_mod"):
            raise HoldfastError(
                "the model is compiled; give it as it was before torch.compile, and compute its "
                "loss with the compiled one: loss(batch, lambda _, batch: compiled(**batch).loss)"
            )
        if not isinstance(model, PeftModel):
            raise HoldfastError(
                f"{type(model).__name__} has no LoRA adapter; wrap it: "
                "peft.get_peft_model(model, LoraConfig(...))"
            )
        self.model = model
        self._more = dict(more or {})
        self._has_masters = masters
        names = model.active_adapters
        if len(names) != 1:
            raise HoldfastError(
                f"{len(names)} adapters are active ({', '.join(names)}); anchors need one: "
                "model.set_adapter(NAME)"
            )
        self.adapter: str = names[0]
        base = model.get_base_model()
        self.layers = lora_layers(base, self.adapter)
        self._check(base)
        self._start_is_given = True
        self._masters: dict[str, Tensor] = {}
        self.folded = False  # whether the matrices were ever changed

    def _check(self, base: Any) -> None:
        config: Any = self.model.peft_config[self.adapter]
        kind, bias = config.peft_type, getattr(config, "bias", "none")
        options = ["use_dora", "modules_to_save", "lora_bias"]
        options += ["trainable_token_indices", "target_parameters"]
        refused = {
            f"the type {getattr(kind, 'value', kind)}": kind != PeftType.LORA,
            f"bias={bias}": bias != "none",
            **{option: getattr(config, option, None) for option in options},
            "a LoRA variant": any(
                self.adapter in getattr(layer.module, "lora_variant", {})
                for layer in self.layers.values()
            ),
            "been merged (unmerge it)": any(layer.module.merged for layer in self.layers.values()),
        }
        for option, is_set in refused.items():
            if is_set:
                raise HoldfastError(
                    f"the adapter {self.adapter} has {option}: anchors know updates of the form "
                    "B A alone; make the adapter without it"
                )
        if not self.layers:
            raise HoldfastError(
                f"the adapter {self.adapter} has no LoRA layer with lora_A and lora_B; its type "
                f"is {kind}"
            )
        factors = self.parameters()
        trainable = {id(factor) for factor in factors.values()}
        for name, parameter in base.named_parameters():
            if parameter.requires_grad and id(parameter) not in trainable:
                raise HoldfastError(
                    f"{name} is trained, and it is no LoRA factor; freeze it, or adapt its layer"
                )
        for name, factor in factors.items():
            if not factor.requires_grad:
                raise HoldfastError(
                    f"{name} is frozen; load the adapter with is_trainable=True to go on from it"
                )

    def parameters(self) -> dict[str, Tensor]:
        """The live trainable parameters: ``MODULE.lora_A``, ``MODULE.lora_B``, and ``more``."""
        return {**parameters_of(self.layers), **self._more}

    def copied(self) -> dict[str, Tensor]:
        """Copies of the trainable parameters, by name."""
        return {name: parameter.detach().clone() for name, parameter in self.parameters().items()}

    @torch.no_grad()
    def write(self, parameters: Mapping[str, Tensor]) -> None:
        """Overwrite the trainable parameters; HoldfastError if one is missing or misshapen."""
        self.check(parameters)
        for name, parameter in self.parameters().items():
            parameter.copy_(parameters[name])
        torch.clear_autocast_cache()  # it has casts of the former values

    @contextmanager
    def at(self, parameters: Mapping[str, Tensor]) -> Iterator[None]:
        """Within the block the trainable parameters have other values; then their own again."""
        before = self.copied()
        self.write(parameters)
        try:
            yield
        finally:
            self.write(before)

    @torch.no_grad()
    def fresh(self, seed: int, task: int) -> None:
        """Draw A by the Kaiming rule, from (seed, task, name of the map) only, and set B = 0.

        Until :meth:`given_start_is_used` the adapter that the model came with is kept instead.
        """
        if self._start_is_given:
            return
        for name, layer in self.layers.items():
            drawn = torch.empty(layer.lora_A.shape, dtype=torch.float32)
            source = generator(seed, "factors", task, name)
            nn.init.kaiming_uniform_(drawn, a=5**0.5, generator=source)
            layer.lora_A.copy_(drawn)
            layer.lora_B.zero_()
        torch.clear_autocast_cache()

    @torch.no_grad()
    def fold(self) -> None:
        """Add ``scale lora_B lora_A`` to every dense matrix and set B = 0.  Source: eq. app-merge.

        With ``masters``, a half-precision matrix has a float32 master in host memory, which it
        rounds. Raises HoldfastError as :meth:`check_mergeable` does.
        """
        self.check_mergeable()
        self.folded = True
        for name, layer in self.layers.items():
            weight = layer.weight
            update = layer.scale * layer.product()
            update = update.t() if getattr(layer.module, "fan_in_fan_out", False) else update
            if weight.element_size() < 4 and self._has_masters:
                master = self._masters.get(name)
                merged = weight.float() if master is None else master.to(weight.device)
                merged += update.float()
                weight.copy_(merged)
                # Into the same memory: to get new pages takes longer than to copy into old ones.
                self._masters[name] = merged.cpu() if master is None else master.copy_(merged)
            else:
                weight += update
            layer.lora_B.zero_()
        torch.clear_autocast_cache()

    def check_mergeable(self) -> None:
        """Raise HoldfastError for a quantized or shared matrix, or one with other adapters."""
        names: dict[int, str] = {}  # of maps, by the address of their matrices
        for name, layer in self.layers.items():
            if others := sorted(set(layer.module.lora_A) - {self.adapter}):
                raise HoldfastError(
                    f"the adapter {others[0]} is on {name} too, which this allocation rule "
                    f"changes for good; call model.delete_adapter({others[0]!r}), or use "
                    "allocation='shared'"
                )
            weight = getattr(layer.module.get_base_layer(), "weight", None)
            if weight is None or weight.dtype not in _PLAIN:
                kind = "another form" if weight is None else str(weight.dtype)
                raise HoldfastError(
                    f"{name} is quantized to {kind}, and this allocation rule merges into "
                    "it; load the model in float32 or bfloat16, or use allocation='shared'"
                )
            if (other := names.setdefault(weight.data_ptr(), name)) != name:
                raise HoldfastError(
                    f"{name} and {other} share one matrix, and this allocation rule would add the "
                    "updates of both to it; use allocation='shared'"
                )

    def check_active(self) -> None:
        """Raise HoldfastError if the adapter was switched off, merged or frozen meanwhile."""
        active = list(self.model.active_adapters)
        if active != [self.adapter]:
            raise HoldfastError(
                f"the adapter {self.adapter} is not the active one any more ({', '.join(active)}); "
                f"call model.set_adapter({self.adapter!r}), or make an Anchored of its own"
            )
        for name, layer in self.layers.items():
            if layer.module.merged:
                raise HoldfastError(f"{name} has its adapter merged; call model.unmerge_adapter()")
            if not (layer.lora_A.requires_grad and layer.lora_B.requires_grad):
                raise HoldfastError(f"the factors of {name} are frozen; let them be trained")

    def check(self, parameters: Mapping[str, Tensor]) -> None:
        """Raise HoldfastError if a trainable parameter is missing or misshapen."""
        for name, parameter in self.parameters().items():
            if name not in parameters or parameters[name].shape != parameter.shape:
                raise HoldfastError(
                    f"the state has no {name} of shape {tuple(parameter.shape)}; it belongs to "
                    "another model, rank or set of target modules"
                )

    def dense(self) -> dict[str, Tensor]:
        """Each adapted map's dense matrix: its float32 master if there is one, else the weight."""
        return {
            name: self._masters.get(name, layer.weight.detach())
            for name, layer in self.layers.items()
        }

    @torch.no_grad()
    def set_dense(self, matrices: Mapping[str, Tensor]) -> None:
        """Overwrite dense matrices by name; HoldfastError if a name or shape is unknown."""
        for name, matrix in matrices.items():
            if name not in self.layers or self.layers[name].weight.shape != matrix.shape:
                raise HoldfastError(f"the model has no matrix {name} of {tuple(matrix.shape)}")
        self.folded = self.folded or bool(matrices)
        for name, matrix in matrices.items():
            weight = self.layers[name].weight
            if weight.element_size() < 4 and self._has_masters:
                self._masters[name] = matrix.float().clone()
            weight.copy_(matrix)
        torch.clear_autocast_cache()

    @torch.no_grad()
    def clear(self) -> None:
        """Set B = 0, so that the model is its dense matrices alone."""
        for layer in self.layers.values():
            layer.lora_B.zero_()
        torch.clear_autocast_cache()

    @property
    def is_clear(self) -> bool:
        """Whether every B is 0."""
        return not bool(torch.stack([layer.lora_B.any() for layer in self.layers.values()]).any())

    def given_start_is_used(self) -> None:
        """Let :meth:`fresh` draw from now on."""
        self._start_is_given = False
