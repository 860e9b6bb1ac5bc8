"""Files that are whole or absent: written beside, flushed to disk, renamed into place.

And directories that one process at a time writes into, and records that only grow.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from holdfast.core.errors import HoldfastError


class InUseError(HoldfastError):
    """Another process holds the directory."""


@contextlib.contextmanager
def alone(directory: Path) -> Iterator[None]:
    """Hold a directory, made if it is not there, for this process and the time of the block.

    Raises InUseError while another process does, HoldfastError when the place cannot be written
    or its file system has no locks.
    """
    lock = FileLock(directory / ".lock", timeout=0)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        raise InUseError(
            f"{directory}: another process is writing here; wait for it, or choose another "
            "directory"
        ) from None
    except (OSError, NotImplementedError) as error:
        reason = getattr(error, "strerror", None) or "its file system has no locks"
        raise HoldfastError(
            f"{directory}: cannot be written ({reason}); choose another directory"
        ) from error
    try:
        yield
    finally:
        lock.release()


def append(path: Path, text: str) -> int:
    """Add text (UTF-8) to the end of a file and flush it to disk; return the file's size in bytes.

    Without room the file stays as it was; being killed may leave a part. Raises HoldfastError
    when there is none.
    """
    size = None
    try:
        with path.open("ab") as file:
            size = file.tell()
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
            return file.tell()
    except OSError as error:
        if size is not None:
            with contextlib.suppress(OSError):
                os.truncate(path, size)
        raise HoldfastError(
            f"{path}: cannot be written ({error.strerror or error}); "
            "free some space, then run the same command again"
        ) from error


def extend(path: Path, text: str) -> None:
    """Add text (UTF-8) to the end of a file in one step: all of it or none, whatever happens.

    The file is copied, so this is for one that grows seldom. Raises HoldfastError when there is
    no room.
    """
    with replacing(path) as temporary:
        if path.exists():
            shutil.copyfile(path, temporary)
        with temporary.open("ab") as file:
            file.write(text.encode())


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; on success it is flushed and renamed over it.

    Raises HoldfastError when the disk is full or the place cannot be written; ``path`` then
    still holds what it held.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        os.replace(temporary, path)
        flush_directory(path.parent)
    except OSError as error:
        raise HoldfastError(
            f"{path}: cannot be written ({error.strerror or error}); "
            "free some space or choose another place, then run the same command again"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def remove_unfinished(directory: Path) -> None:
    """Remove what a killed writer left of :func:`replacing`; no other may be writing there."""
    for path in directory.glob(".*.part"):
        with contextlib.suppress(OSError):
            path.unlink()


def write_text_atomically(path: Path, text: str) -> None:
    """Replace a text file in one step (UTF-8)."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Replace a JSON file in one step. NaN is not JSON and is refused (ValueError)."""
    write_text_atomically(path, json_text(value))


def json_text(value: Any) -> str:
    """What :func:`write_json` writes."""
    return json.dumps(value, indent=1, allow_nan=False) + "\n"


def read_json(path: Path) -> Any:
    """Read a JSON file; HoldfastError when it is missing or damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise HoldfastError(f"{path}: no such file") from None
    except OSError as error:
        raise HoldfastError(f"{path}: cannot be read ({error.strerror})") from error
    # A number may have more digits than Python reads (ValueError); brackets may nest too deep.
    except (ValueError, RecursionError) as error:
        raise HoldfastError(
            f"{path}: is no valid JSON ({error}); it may be damaged: restore it, or start again "
            "in a new place"
        ) from error


def flush_directory(directory: Path) -> None:
    """Make a rename durable; some file systems have no directory handles to flush."""
    with contextlib.suppress(OSError):
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
