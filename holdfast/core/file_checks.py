"""Checks before files are read, changed or removed: regular files only, nothing behind a link.

A reader opens only a regular file, since a named pipe or a device in its place may never end. A
writer changes and removes only files in its own directory, and refuses links there, since what they
lead to belongs to somebody else.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import weakref
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from holdfast.core.errors import HoldfastError

_UNFINISHED = re.compile(r"\..+\.\d+\.part")  # as holdfast.core.files.atomic_write names them


def regular(path: Path) -> Path:
    """Return the path of a regular file, or of a link to one; OSError for anything else."""
    _check_regular(path, path.stat().st_mode)
    return path


def own_file(path: Path) -> Path:
    """Return the path of a regular file, or of nothing yet; OSError for a link or other things."""
    with contextlib.suppress(FileNotFoundError):
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            reason = "it is a link, and what a link leads to is never changed"
            raise OSError(errno.ELOOP, reason, str(path))
        _check_regular(path, mode)
    return path


def _check_regular(path: Path, mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is no regular file", str(path))


def refuse_links(directory: Path, parts: Iterable[str]) -> None:
    """Raise HoldfastError if a part of a directory is a link; the directory may be one.

    parts: files and folders to be written, relative to the directory.
    """
    for part in parts:
        path = directory / part
        if path.is_symlink():
            raise HoldfastError(
                f"{path}: is a link to {os.path.realpath(path)}, and nothing is written or removed "
                "behind a link; put what it leads to in its place, or link the whole directory"
            )


def remove_named(directory: Path, names: Iterable[str]) -> None:
    """Remove files that the directory's own record names; what cannot be removed stays.

    names: relative to the directory; names that lead out of it, even by a linked folder, are
    ignored.
    """
    home = os.path.realpath(directory)
    for name in names:
        relative, path = PurePosixPath(name), directory / name
        below = not relative.is_absolute() and ".." not in relative.parts
        inside = os.path.realpath(path.parent) == os.path.normpath(
            os.path.join(home, relative.parent)
        )
        if below and inside:
            with contextlib.suppress(OSError):
                path.unlink()


def remove_unfinished(directory: Path, name: str = "") -> None:
    """Remove what killed :func:`holdfast.core.files.atomic_write` calls left in a directory.

    name: of the file that they were to replace, or its beginning. No process may be writing there.
    """
    for path in unfinished(directory, name):
        with contextlib.suppress(OSError):
            if path.is_dir() and not path.is_symlink():
                remove_folder(path)
            else:
                path.unlink()


def unfinished(directory: Path, name: str = "") -> list[Path]:
    """What :func:`remove_unfinished` would remove."""
    parts = [] if directory.is_symlink() else directory.glob(f".{name}*.part")
    return [path for path in parts if _UNFINISHED.fullmatch(path.name)]


def remove_folder(folder: Path) -> None:
    """Remove a folder of our files; OSError if it holds folders or is a link."""
    if folder.is_symlink():
        raise OSError(errno.ELOOP, "it is a link", str(folder))
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


def require_directory(directory: Path) -> None:
    """Raise HoldfastError if a directory to be written in was moved or removed."""
    if not directory.is_dir():
        raise moved(directory)


def moved(directory: Path) -> HoldfastError:
    """The error for a directory that is no longer where something is to be written."""
    return HoldfastError(
        f"{directory}: was moved or removed meanwhile; repeat the command where it is now"
    )


class HeldDirectory:
    """An open directory, which notices when it is moved or removed; OSError if there is none."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle = os.open(path, os.O_RDONLY)  # while open, its inode number is not reused
        weakref.finalize(self, os.close, self._handle)

    @property
    def is_gone(self) -> bool:
        """Whether its path now leads to nothing, or to another directory."""
        try:
            return not os.path.samestat(os.fstat(self._handle), self._path.stat())
        except OSError:
            return True
