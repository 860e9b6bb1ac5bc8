"""Load a model and its tokenizer: plain transformers, float32, frozen, in evaluation mode."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from holdfast.core.errors import HoldfastError, reason_of
from holdfast.model.check import check_all_weights_loaded, check_directory
from holdfast.model.fetch import find
from holdfast.model.layers import keeps_keys_and_values, maps_of_layers
from holdfast.model.quiet import quiet

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
    return model.eval().requires_grad_(False), load_tokenizer(directory)


def load_tokenizer(directory: Path) -> Any:
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


def load_config(directory: Path) -> Any:
    """The configuration of a model's directory. Raises HoldfastError as :func:`load_model`."""
    check_directory(directory)
    with _loading("configuration", directory):
        return AutoConfig.from_pretrained(directory, local_files_only=True)
