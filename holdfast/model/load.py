"""Load a model: a plain one in float32, as a memory reads it, or the backbone of a run."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig

from holdfast.core.errors import HoldfastError, reason_of
from holdfast.core.hub import hub_or_cache
from holdfast.model.backbone import Backbone
from holdfast.model.hardware import (
    check_available,
    device_of,
    resolved_attention,
    resolved_precision,
)
from holdfast.model.layers import keeps_keys_and_values, maps_of_layers
from holdfast.model.quiet import quiet
from holdfast.model.sources.check import (
    check_all_weights_loaded,
    check_directory,
    check_kind,
    check_tokenizer,
    check_vocabulary,
    refuse_pipes,
)
from holdfast.model.sources.fetch import fetch, find, is_made_ready

# What transformers raises for files that hold no model.
UNREADABLE = (
    *(OSError, ValueError, KeyError, ImportError, RuntimeError, SafetensorError),
    StrictDataclassError,  # a configuration with a value that fits no model
)


def with_all_weights(source: str | Path, name: str | Path, **options: Any) -> Any:
    """The causal language model of a directory or hub name, by transformers.

    name: for messages; options: of ``from_pretrained``. Raises what transformers raises, and
    HoldfastError if weights are missing or misshapen, which transformers would draw at random.
    """
    loaded: Any = AutoModelForCausalLM.from_pretrained(
        source,
        trust_remote_code=False,
        use_safetensors=True,  # other formats can hold code
        ignore_mismatched_sizes=True,  # check_all_weights_loaded reports them
        output_loading_info=True,
        **options,
    )
    model, info = loaded
    check_all_weights_loaded(name, info)
    return model


def load_model(name: str | Path) -> tuple[Any, Any]:
    """The model of a name or directory, and its tokenizer; nothing is downloaded.

    The model is in float32 and evaluation mode, and no parameter requires a gradient. Raises
    HoldfastError: not fetched, missing or damaged files, a model that cannot be adapted.
    """
    directory = find(name)
    if directory is None:
        if Path(name).is_dir():
            check_directory(Path(name))  # reports what is missing
        raise HoldfastError(f"{name}: is not here; `holdfast fetch {name}` makes it ready")
    check_directory(directory)
    with _loading("causal language model", directory):
        model = with_all_weights(directory, directory, dtype=torch.float32, local_files_only=True)
    if not maps_of_layers(model):
        raise HoldfastError(
            f"{directory}: cannot be adapted: the layers of its {type(model).__name__} hold no "
            "linear maps"
        )
    if not keeps_keys_and_values(model):
        raise HoldfastError(
            f"{directory}: is a {type(model).__name__}, which keeps a state of what it has read; a "
            "memory needs a model all of whose layers keep keys and values"
        )
    tokenizer = read_tokenizer(directory)
    check_vocabulary(model, tokenizer)
    return model.eval().requires_grad_(False), tokenizer


def read_tokenizer(directory: Path) -> Any:
    """Only the tokenizer of a model's directory. Raises HoldfastError as :func:`load_model`."""
    check_directory(directory)
    with _loading("tokenizer", directory):
        return AutoTokenizer.from_pretrained(directory, local_files_only=True)


@contextlib.contextmanager
def _loading(part: str, directory: Path) -> Iterator[None]:
    """Keep transformers quiet, and turn its exceptions into one line."""
    try:
        with quiet():
            yield
    except UNREADABLE as error:
        reason = reason_of(error, 200)
        raise HoldfastError(
            f"{directory}: no {part} could be loaded ({reason}); name a directory written by "
            "save_pretrained"
        ) from error


def read_config(directory: Path) -> Any:
    """The configuration of a model's directory. Raises HoldfastError as :func:`load_model`."""
    check_directory(directory)
    with _loading("configuration", directory):
        return AutoConfig.from_pretrained(directory, local_files_only=True)


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
    if not is_made_ready(config.name) and Path(config.name).is_dir():
        check_directory(Path(config.name))
    tokenizer = load_tokenizer(config.name, config.revision)
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
        raise HoldfastError(
            f"backbone.name = {config.name}: is a PEFT adapter, whose maps a run would train "
            "beside ours; merge it into its base first (merge_and_unload, then save_pretrained)"
        )
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
        check_kind(name, config.to_dict())
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
