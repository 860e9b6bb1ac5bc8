"""Tensors and a JSON note in one file, written atomically, with digests that reading checks."""

from __future__ import annotations

import contextlib
import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from holdfast.core.errors import reason_of
from holdfast.core.file_checks import regular
from holdfast.core.files import atomic_write


def write_tensors(
    path: Path, tensors: dict[str, torch.Tensor], note: Any = None, *, parents: bool = False
) -> None:
    """Write tensors and a JSON note; ``parents``: as in :func:`holdfast.core.files.atomic_write`.

    Raises HoldfastError if the file cannot be written.
    """
    digests = {name: _digest(tensors[name]) for name in sorted(tensors)}
    metadata = {"holdfast": json.dumps({"note": note, "sha256": digests})}
    save_tensors(path, tensors, metadata, parents=parents)


def save_tensors(
    path: Path,
    tensors: dict[str, torch.Tensor],
    metadata: dict[str, str] | None = None,
    *,
    parents: bool = False,
) -> None:
    """Write a safetensors file atomically. Raises HoldfastError if it cannot be written."""
    with atomic_write(path, in_folder=True, parents=parents) as temporary:
        try:
            save_file(tensors, temporary, metadata=metadata)
        except SafetensorError as error:  # safetensors has its own error for a full disk
            raise OSError(str(error)) from error
        # safetensors makes files that only their owner may read; take the folder's permissions.
        with contextlib.suppress(OSError):
            temporary.chmod(path.parent.stat().st_mode & 0o666)


def read_tensors(path: Path, only: str | None = None) -> tuple[dict[str, torch.Tensor], Any]:
    """Read the tensors, or only one of them, and the note.

    Raises ValueError, in one line, if the file is missing or differs from what was written.
    """
    try:
        with safe_open(regular(path), framework="pt") as file:
            names = file.keys() if only is None else [only]
            # A tensor in a file may have any address, and products with it may round otherwise than
            # with the one that was written; a copy is aligned like other tensors.
            tensors = {name: file.get_tensor(name).clone() for name in names}
            metadata = json.loads((file.metadata() or {})["holdfast"])
        for name, tensor in tensors.items():
            if _digest(tensor) != metadata["sha256"][name]:
                raise ValueError(f"{name} has other contents than were written")
        return tensors, metadata["note"]
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise ValueError(reason_of(error, 100)) from error


def _digest(tensor: torch.Tensor) -> str:
    content = tensor.detach().contiguous().view(torch.uint8).numpy()
    return hashlib.sha256(content.tobytes()).hexdigest()
