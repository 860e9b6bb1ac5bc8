"""The identity of a model's files: one digest over its configuration and its weights."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

from holdfast.core.errors import HoldfastError
from holdfast.core.files import read_json
from holdfast.model.cache import read_manifest, remembered_sha256

# Settings that say how the files were written; they are not the model's.
_WRITER = ("transformers_version", "_name_or_path", "dtype", "torch_dtype")


def fingerprint(directory: Path | str) -> str:
    """The sha256 (hex) over a model's configuration and the digests of its safetensors.

    Models of the cache have it in their manifest; elsewhere each file's digest is remembered by its
    size and modification time. Raises HoldfastError if there are no such files.
    """
    directory = Path(directory)
    manifest = read_manifest(directory)
    if manifest is not None and isinstance(manifest.get("fingerprint"), str):
        return str(manifest["fingerprint"])
    return computed_fingerprint(directory)


def computed_fingerprint(
    directory: Path, digest: Callable[[Path], str | None] = remembered_sha256
) -> str:
    """:func:`fingerprint` from the files themselves; digest: returns the sha256 of a file."""
    config = read_json(directory / "config.json")
    if not isinstance(config, dict):
        raise HoldfastError(f"{directory / 'config.json'}: is no configuration of a model")
    settings = {key: value for key, value in config.items() if key not in _WRITER}
    weights = {path.name: digest(path) for path in directory.glob("*.safetensors")}
    if not weights:
        raise HoldfastError(f"{directory}: holds no weights as safetensors")
    text = json.dumps({"config": settings, "weights": weights}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
