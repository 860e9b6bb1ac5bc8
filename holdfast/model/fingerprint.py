"""The identity of a model: one digest over its configuration and its weights."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

from holdfast.core.errors import HoldfastError
from holdfast.core.files import read_json
from holdfast.model.cache import read_manifest, remembered_sha256

# They name the program that wrote the file, not the model.
_WRITER = ("transformers_version", "_name_or_path", "dtype", "torch_dtype")


def fingerprint(directory: Path | str) -> str:
    """The sha256 (hex) over a model's configuration and the digests of its safetensors.

    Kept in the manifest of the cache's models; elsewhere the digest of each file is remembered by
    its size and time of modification. Raises HoldfastError when there are no such files.
    """
    directory = Path(directory)
    manifest = read_manifest(directory)
    if manifest is not None and isinstance(manifest.get("fingerprint"), str):
        return str(manifest["fingerprint"])
    return computed_fingerprint(directory)


def computed_fingerprint(
    directory: Path, digest: Callable[[Path], str | None] = remembered_sha256
) -> str:
    """:func:`fingerprint` from the files themselves; digest: the sha256 of one of them."""
    config = read_json(directory / "config.json")
    if not isinstance(config, dict):
        raise HoldfastError(f"{directory / 'config.json'}: is no configuration of a model")
    settings = {key: value for key, value in config.items() if key not in _WRITER}
    weights = {path.name: digest(path) for path in directory.glob("*.safetensors")}
    if not weights:
        raise HoldfastError(f"{directory}: holds no weights as safetensors")
    text = json.dumps({"config": settings, "weights": weights}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
