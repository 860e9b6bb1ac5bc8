"""Check, without torch, whether a directory holds a causal language model and its tokenizer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from holdfast.core.errors import HoldfastError, reason_of
from holdfast.core.files import read_json

_TOKENIZERS = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json")
# The names of architectures that continue a text contain one of these.
_CAUSAL = ("CausalLM", "LMHead", "ConditionalGeneration")


def check_directory(directory: Path) -> None:
    """Raise HoldfastError with one line if no causal model can be loaded from a directory."""
    if directory.is_dir():
        refuse_pipes(directory)
    if not (directory / "config.json").is_file():
        if (directory / "adapter_config.json").is_file():
            raise HoldfastError(
                f"{directory}: is an adapter, not a model; merge it into its model first "
                "(merge_and_unload, then save_pretrained)"
            )
        raise HoldfastError(
            f"{directory}: holds no config.json; name a directory written by save_pretrained"
        )
    if (directory / "adapter_config.json").is_file():  # transformers would load it, also a .bin
        raise HoldfastError(
            f"{directory}: holds an adapter beside the model; merge it first (merge_and_unload, "
            "then save_pretrained)"
        )
    config = read_json(directory / "config.json")
    if not isinstance(config, dict):
        raise HoldfastError(f"{directory / 'config.json'}: is no configuration of a model")
    check_kind(directory, config)
    _check_weights(directory)
    check_tokenizer(directory)


def check_kind(name: str | Path, config: Mapping[str, Any]) -> None:
    """Raise HoldfastError if a model's configuration is not of a causal language model."""
    if config.get("is_encoder_decoder"):
        raise HoldfastError(
            f"{name}: is an encoder-decoder ({config.get('model_type')}), and only a causal "
            "language model can be adapted"
        )
    kinds = [str(kind) for kind in config.get("architectures") or ()]
    if kinds and not any(word in kind for kind in kinds for word in _CAUSAL):
        raise HoldfastError(f"{name}: is a {kinds[0]}, which is no causal language model")


def check_tokenizer(directory: str | Path) -> None:
    """Raise HoldfastError if a directory holds no tokenizer."""
    if not any((Path(directory) / name).is_file() for name in _TOKENIZERS):
        raise HoldfastError(
            f"{directory}: holds no tokenizer (tokenizer.json or tokenizer_config.json); "
            "save the model's tokenizer there too"
        )


def check_all_weights_loaded(name: str | Path, info: Mapping[str, Any]) -> None:
    """Raise HoldfastError if a model's files lack weights, which are then drawn at random.

    info: what ``from_pretrained`` returns with ``output_loading_info`` and
    ``ignore_mismatched_sizes``.
    """
    missing = sorted(map(str, info["missing_keys"]))
    if missing:
        raise HoldfastError(
            f"{name}: its files lack {missing[0]} ({len(missing)} in all), which would be drawn at "
            "random; save the whole causal language model with save_pretrained"
        )
    if info["mismatched_keys"]:
        weight, shape, wanted = min(info["mismatched_keys"])
        raise HoldfastError(
            f"{name}: {weight} has the shape {tuple(shape)} in its files and {tuple(wanted)} by "
            "its config.json; save both again with save_pretrained"
        )


def check_vocabulary(model: Any, tokenizer: Any) -> None:
    """Raise HoldfastError if a tokenizer has a token without a row in the model's embedding."""
    rows = int(model.get_input_embeddings().weight.shape[0])
    highest = max(tokenizer.get_vocab().values())
    if highest >= rows:
        raise HoldfastError(
            f"{model.name_or_path or type(model).__name__}: its tokenizer has token {highest}, and "
            f"its embedding {rows} rows; save the model with the tokenizer it was trained with"
        )


def refuse_pipes(directory: Path) -> None:
    """Raise HoldfastError for a named pipe or a device, since reading it might never end."""
    for path in sorted(directory.iterdir()):
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise HoldfastError(f"{path}: is no regular file; copy the model again without it")


def _check_weights(directory: Path) -> None:
    """Raise HoldfastError if weights are missing, damaged or not safetensors."""
    index = directory / "model.safetensors.index.json"
    if index.is_file():
        content = read_json(index)
        shard_of = content.get("weight_map") if isinstance(content, dict) else None
        shards = set(shard_of.values()) if isinstance(shard_of, dict) else {"its shards"}
        missing = sorted(str(name) for name in shards if not (directory / str(name)).is_file())
        if missing:
            raise HoldfastError(f"{directory}: {missing[0]} is missing; copy the model again")
    elif not (directory / "model.safetensors").is_file():
        other = any(directory.glob("*.bin"))
        reason = ", and .bin files, which can hold code, are not read" if other else ""
        raise HoldfastError(
            f"{directory}: holds no model.safetensors{reason}; save the model again with "
            "save_pretrained"
        )
    for weights in sorted(directory.glob("model*.safetensors")):
        try:
            with safe_open(weights, framework="numpy"):  # reads the header, and compares the length
                pass
        except SafetensorError as error:
            raise HoldfastError(
                f"{weights}: is damaged ({reason_of(error, 100)}); copy the model again"
            ) from error
