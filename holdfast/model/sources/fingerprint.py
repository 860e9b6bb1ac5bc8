"""The identity of a model: one digest over its configuration and its weights; digests of files."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.core.file_checks import regular
from holdfast.core.files import read_json, write_json
from holdfast.model.sources.cache import cache_directory, read_manifest

# Settings that say how the files were written; they are not the model's.
_WRITER = ("transformers_version", "_name_or_path", "dtype", "torch_dtype")


def sha256_of_file(path: Path) -> str:
    """The sha256 of a file's bytes, in hex. Raises HoldfastError if it cannot be read."""
    try:
        with regular(path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise HoldfastError(f"{path}: cannot be read ({error.strerror})") from error


def remembered_sha256(path: Path) -> str:
    """:func:`sha256_of_file`, remembered by the file's path, size and modification time."""
    if known := known_sha256(path):
        return known
    state, record_path = _record_of(path)
    digest = sha256_of_file(Path(state["path"]))
    with suppress(HoldfastError):  # the cache cannot be written
        write_json(record_path, {**state, "sha256": digest}, parents=True)
    return digest


def known_sha256(path: Path) -> str | None:
    """What :func:`remembered_sha256` remembers of a file; None if it would have to read it."""
    state, record_path = _record_of(path)
    with suppress(OSError, ValueError, KeyError, TypeError):  # no record, or a damaged one
        record = json.loads(regular(record_path).read_text(encoding="utf-8"))
        if {key: record[key] for key in state} == state:
            return str(record["sha256"])
    return None


def _record_of(path: Path) -> tuple[dict[str, Any], Path]:
    """By what a file's digest is remembered, and where."""
    real = Path(os.path.realpath(path))
    try:
        status = real.stat()
    except OSError as error:
        raise HoldfastError(f"{path}: cannot be read ({error.strerror})") from error
    name = hashlib.sha256(os.fsencode(real)).hexdigest()[:24]
    state = {"path": str(real), "size": status.st_size, "mtime_ns": status.st_mtime_ns}
    return state, cache_directory() / "digests" / f"{name}.json"


def fingerprint(directory: Path | str) -> str:
    """The sha256 (hex) over a model's configuration and the digests of its safetensors.

    Raises HoldfastError if there are no such files.
    """
    directory = Path(directory)
    manifest = read_manifest(directory)
    if manifest is not None and isinstance(manifest.get("fingerprint"), str):
        return str(manifest["fingerprint"])
    return computed_fingerprint(directory)


def computed_fingerprint(directory: Path, digest: Callable[[Path], str] = remembered_sha256) -> str:
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
