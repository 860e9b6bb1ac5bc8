"""Load a backbone: a Hugging Face causal language model, or the embedded one."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig

from holdfast.backbone.model import Backbone
from holdfast.core.errors import HoldfastError, reason_of
from holdfast.core.hub import hub_or_cache
from holdfast.core.processes import local_rank, world_size
from holdfast.model.check import check_tokenizer, check_weights, refuse_pipes
from holdfast.model.fetch import fetch, is_made_ready
from holdfast.model.load import UNREADABLE, with_all_weights
from holdfast.model.quiet import quiet

_PROBES = 15  # products in each precision; in all a second if one is slow
_WORTH_IT = 1.0  # of float32's time; CPUs take about 0.5 of it, or far more than 1


def load_backbone(config: Backbone.Config | None = None) -> Backbone:
    """Load the backbone that a configuration names; fetch one with a short name if it is not here.

    Its GPU, if it is on one, becomes the process's default, and cuDNN's attention is turned off.
    Raises HoldfastError: unknown name or revision, a short name that cannot be fetched, no
    tokenizer, no such device, an attention or a package that is not available, an adapter.
    """
    config = config or Backbone.Config()
    device = device_of(config)
    check_available(config)
    dtype = getattr(torch, resolved_precision(config))
    if config.deterministic:
        # cuBLAS reads it when it is first used; without it torch refuses matrix products.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    tokenizer = load_tokenizer(config.name, config.revision)
    _check_local(config.name)
    options = _revision(config.name, config.revision)
    attention = resolved_attention(config, resolved_precision(config), device.type)
    if attention != "auto":
        options["attn_implementation"] = attention
    if config.quantization != "none":
        options |= {"quantization_config": _quantized(config, dtype), "device_map": {"": device}}
    with _reading(config.name, config.revision, config.attention):
        name = f"backbone.name = {config.name}"
        model = with_all_weights(_source(config.name), name, dtype=dtype, **options)
    if getattr(model, "_hf_peft_config_loaded", False):
        raise _is_adapter(config.name)
    if dtype == torch.float64 and multiplies_in_groups(model):
        model.set_experts_implementation("eager")  # torch has no grouped product in float64
    if config.quantization != "none":
        _keep_gradients(model)
    else:
        model = model.to(device)
    if device.type == "cuda":
        torch.cuda.set_device(model.device)
        # It reportedly plans for tens of milliseconds at every new length, which most steps have,
        # and gains nothing on sequences of a few hundred tokens.
        torch.backends.cuda.enable_cudnn_sdp(False)
    return Backbone(model, tokenizer)


def _quantized(config: Backbone.Config, dtype: torch.dtype) -> BitsAndBytesConfig:
    """How bitsandbytes stores the linear maps. Source: Dettmers et al. 2022, 2023."""
    if config.quantization == "int8":
        return BitsAndBytesConfig(load_in_8bit=True)
    return BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype
    )


def _keep_gradients(model: Any) -> None:
    """Keep bitsandbytes from packing 4-bit matrices on CPUs with AVX512-BF16.

    It packs them in the first evaluation without gradients, for a product that has no gradient.
    """
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False


def _check_local(name: str) -> None:
    """Raise HoldfastError, before weights are loaded, if a directory holds no complete model."""
    if is_made_ready(name) or not Path(name).is_dir():
        return
    if (Path(name) / "adapter_config.json").exists():
        raise _is_adapter(name)
    if (Path(name) / "config.json").exists():
        check_weights(Path(name))


def _is_adapter(name: str) -> HoldfastError:
    return HoldfastError(
        f"backbone.name = {name}: is a PEFT adapter, whose maps a run would train "
        "beside ours; merge it into its base first (merge_and_unload, then save_pretrained)"
    )


def multiplies_in_groups(model: Any) -> bool:
    """Whether transformers computes all experts of a mixture in one grouped product."""
    config = model.config.get_text_config()
    return getattr(config, "_experts_implementation", None) == "grouped_mm"


def load_shape(name: str, revision: str | None = None) -> Any:
    """The model of this name without its weights, on the meta device.

    revision: on the hub. Raises HoldfastError if no configuration is found.
    """
    with _reading(name, revision), torch.device("meta"):
        config = AutoConfig.from_pretrained(
            _source(name), trust_remote_code=False, **_revision(name, revision)
        )
        return AutoModelForCausalLM.from_config(config, trust_remote_code=False)


def load_tokenizer(name: str, revision: str | None = None) -> Any:
    """The tokenizer of the backbone with this name; revision: on the hub.

    Raises HoldfastError: unknown name, no tokenizer beside the model.
    """
    source = _source(name)
    if not is_made_ready(name) and Path(source).is_dir():
        check_tokenizer(source)
    with _reading(name, revision):
        tokenizer: Any = AutoTokenizer.from_pretrained(
            source, trust_remote_code=False, **_revision(name, revision)
        )
    # No warning of long texts: the template refuses or cuts them, and says so.
    tokenizer.deprecation_warnings["sequence-length-is-longer-than-the-specified-maximum"] = True
    return tokenizer


def _source(name: str) -> str:
    """The path or hub name that transformers loads, after a model of ours or a file is fetched."""
    source = str(fetch(name)) if is_made_ready(name) else name
    if Path(source).is_dir():
        refuse_pipes(Path(source))
    return source


def _revision(name: str, revision: str | None) -> dict[str, Any]:
    if revision is None:
        return {}
    if is_made_ready(name) or Path(name).is_dir():
        model = f"the model {name}" if is_made_ready(name) else f"{name}, a directory,"
        raise HoldfastError(
            f"backbone.revision = {revision}: {model} has no revisions, as only models of the hub "
            "have; leave it out"
        )
    return {"revision": revision}


def check_available(config: Backbone.Config) -> None:
    """Raise HoldfastError, before loading, if a setting needs a package or GPU that is missing."""
    if config.quantization != "none" and find_spec("bitsandbytes") is None:
        raise HoldfastError(
            f"backbone.quantization = {config.quantization}: bitsandbytes is not installed; pip "
            'install "holdfast[quantization]"'
        )
    if config.attention != "flash_attention_2":
        return
    setting = f"backbone.attention = {config.attention}"
    if device_of(config).type != "cuda":
        raise HoldfastError(f"{setting}: runs on a GPU only; leave it out, or use sdpa")
    if find_spec("flash_attn") is None:
        raise HoldfastError(
            f"{setting}: its package is not installed; pip install flash-attn, or use sdpa, which "
            "has such kernels too"
        )
    if resolved_precision(config) != "bfloat16":
        raise HoldfastError(f"{setting}: computes in bfloat16; set backbone.precision=bfloat16")


@contextlib.contextmanager
def _reading(name: str, revision: str | None = None, attention: str = "auto") -> Iterator[None]:
    """Keep transformers quiet, and turn errors of reading a model into one line."""
    is_local = Path(_source(name)).is_dir()
    hub = contextlib.nullcontext(True) if is_local else hub_or_cache()
    reachable = True
    try:
        with hub as reachable, quiet():
            yield
    except UNREADABLE as error:
        reason = reason_of(error, 200)
        if not reachable and isinstance(error, OSError):
            reason = "no directory, nor in the hub's cache, and the hub does not answer"
        if attention != "auto" and "attention" in reason.lower():
            raise HoldfastError(
                f"backbone.attention = {attention}: {name} has none of that kind ({reason}); "
                "use auto"
            ) from error
        at = "" if revision is None else f" at backbone.revision = {revision}"
        raise HoldfastError(
            f"backbone.name = {name}{at}: no causal language model could be loaded ({reason}); "
            'use "embedded", a hub name or a directory written by save_pretrained'
        ) from error


def device_of(config: Backbone.Config) -> torch.device:
    """The device of a configuration on this machine: auto is CUDA if there is a GPU.

    On GPUs, each of several processes gets its own. Raises HoldfastError if there is none.
    """
    name = config.device
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise HoldfastError(
            f"backbone.device = {name}: not available here; use cpu or auto"
        ) from error
    place, gpus = local_rank(), torch.cuda.device_count()
    if place is None or device.type != "cuda":
        return device
    if str(device) != "cuda":
        raise HoldfastError(
            f"backbone.device = {device}: one GPU, for {world_size()} processes; with auto or cuda "
            "each takes its own"
        )
    if place >= gpus:
        raise HoldfastError(
            f"process {place + 1} of this machine finds no GPU of its own, there are {gpus}; start "
            f"{gpus} here, or use backbone.device=cpu"
        )
    return torch.device("cuda", place)


def resolved_precision(config: Backbone.Config) -> str:
    """The precision of a configuration on this machine.

    auto is bfloat16 on CUDA and float32 elsewhere; fastest is bfloat16 also on a CPU that
    multiplies faster in it.
    """
    if config.precision not in ("auto", "fastest"):
        return config.precision
    if device_of(config).type == "cuda":
        return "bfloat16"
    return "bfloat16" if config.precision == "fastest" and bfloat16_pays() else "float32"


def resolved_attention(config: Backbone.Config, precision: str, device: str) -> str:
    """The attention of a configuration; auto leaves the choice to transformers.

    On a CPU, plain products in bfloat16 take a quarter to a half of the time of PyTorch's fused
    kernel with its gradient.
    """
    if config.attention == "auto" and precision == "bfloat16" and device == "cpu":
        return "eager"
    return config.attention


def bfloat16_pays() -> bool:
    """Whether this CPU multiplies faster in bfloat16 than in float32."""
    return bfloat16_time() < _WORTH_IT


@cache
def bfloat16_time() -> float:
    """The time of products in bfloat16 on this CPU, relative to float32; measured once.

    The matrices have the shapes of a batch and a map of SmolLM2-135M; the fastest of some
    repetitions counts, because other work on the CPU slows some of them.
    """
    products = {
        dtype: (torch.ones(256, 576, dtype=dtype), torch.ones(1536, 576, dtype=dtype))
        for dtype in (torch.float32, torch.bfloat16)
    }
    best = dict.fromkeys(products, math.inf)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # threads wait for each other if other work runs
    try:
        for _ in range(_PROBES):
            for dtype, (states, weight) in products.items():
                begun = time.perf_counter()
                torch.nn.functional.linear(states, weight)
                best[dtype] = min(best[dtype], time.perf_counter() - begun)
    finally:
        torch.set_num_threads(threads)
    return best[torch.bfloat16] / best[torch.float32]
