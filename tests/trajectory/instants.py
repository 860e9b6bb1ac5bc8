"""The instants of a run's writing at which a process may die, or a disk may be full."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from safetensors import SafetensorError
from safetensors.torch import save

from holdfast.model import tensors

Hear = Callable[[str], None]

# At these a full disk can make itself known; at the others a process can only die.
WRITES = ("half", "flush", "rename")


@contextmanager
def heard(hear: Hear) -> Iterator[None]:
    """Within the block, ``hear`` is called with every instant's name; what it raises is raised.

    half: a part of a file is written; flush: before a file is; rename: before one; renamed,
    removed, cut: after.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tensors, "save_file", _saving(tensors.save_file, hear))
        patch.setattr(Path, "write_text", _writing(Path.write_text, hear))
        patch.setattr(Path, "open", _opening(Path.open, hear))
        patch.setattr(Path, "unlink", _then(Path.unlink, hear, "removed"))
        patch.setattr(os, "truncate", _then(os.truncate, hear, "cut"))
        patch.setattr(os, "fsync", _flushing(os.fsync, hear))
        patch.setattr(os, "replace", _renaming(os.replace, hear))
        yield


def _saving(real: Any, hear: Hear) -> Any:
    def save_file(values: Any, path: Path, **more: Any) -> None:
        # As the library does: under a name of its own, beside the one it was given.
        partial = Path(path).with_name(".tmpAbCdEf")
        content = save(values, **more)
        partial.write_bytes(content[: len(content) // 2])
        try:
            hear("half")
        except OSError as error:
            raise SafetensorError(f"Error while serializing: I/O error: {error}") from None
        finally:
            os.unlink(partial)
        real(values, path, **more)

    return save_file


def _writing(real: Any, hear: Hear) -> Any:
    def write_text(path: Path, text: str, **options: Any) -> None:
        real(path, text[: len(text) // 2], **options)
        hear("half")
        real(path, text, **options)

    return write_text


class _Appending:
    """A file at whose end something is being written."""

    def __init__(self, file: Any, hear: Hear) -> None:
        self._file = file
        self._hear = hear

    def write(self, content: bytes) -> None:
        self._file.write(content[: len(content) // 2])
        self._file.flush()
        self._hear("half")
        self._file.write(content[len(content) // 2 :])

    def __enter__(self) -> _Appending:
        return self

    def __exit__(self, *reason: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def _opening(real: Any, hear: Hear) -> Any:
    def open_(path: Path, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        file = real(path, mode, *arguments, **options)
        return _Appending(file, hear) if mode == "ab" else file

    return open_


def _flushing(real: Any, hear: Hear) -> Any:
    def fsync(handle: int) -> None:
        # Not every file system can flush a directory, so that is no error.
        if not stat.S_ISDIR(os.fstat(handle).st_mode):
            hear("flush")
        real(handle)

    return fsync


def _renaming(real: Any, hear: Hear) -> Any:
    def replace(source: Any, target: Any) -> None:
        hear("rename")
        real(source, target)
        hear("renamed")

    return replace


def _then(real: Any, hear: Hear, name: str) -> Any:
    def call(*arguments: Any, **options: Any) -> None:
        real(*arguments, **options)
        hear(name)

    return call
