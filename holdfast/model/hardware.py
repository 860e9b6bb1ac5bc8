"""What a backbone's settings mean on this machine: its device, its precision, its attention."""

from __future__ import annotations

import math
import time
from functools import cache
from importlib.util import find_spec

import torch

from holdfast.core.errors import HoldfastError
from holdfast.core.processes import local_rank, world_size
from holdfast.model.backbone import Backbone

_PROBES = 15  # products in each precision; in all a second if one is slow
_WORTH_IT = 1.0  # of float32's time; CPUs take about 0.5 of it, or far more than 1


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
