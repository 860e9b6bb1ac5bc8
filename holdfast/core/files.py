"""Write files and directories atomically: to a temporary path, flushed, renamed into place.

Also directory locks, files that are only appended to, and directories of results.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from holdfast.core.errors import HoldfastError, InUseError, NoSpaceError, UnwritableError
from holdfast.core.file_checks import (
    HeldDirectory,
    moved,
    own_file,
    refuse_links,
    regular,
    remove_folder,
    remove_named,
    require_directory,
)

_LOCK = ".lock"
MOMENT = 0.3  # seconds of patience, since is_locked holds a lock for an instant
FOR_EVER = -1.0


@contextlib.contextmanager
def lock_directory(
    directory: Path,
    *,
    lock: str = _LOCK,
    patience: float = MOMENT,
    parts: Iterable[str] = (),
    create: bool = True,
) -> Iterator[None]:
    """Lock a directory for this process during the block.

    lock: name of the lock's file, if a directory has several locks; patience: seconds to wait for
    another process that holds the lock, or ``FOR_EVER``; parts: files and folders to be written
    there; create: create a missing directory. Raises InUseError if the lock is still held then,
    HoldfastError if a part is a link, or the directory was moved or cannot be written or locked.
    """
    refuse_links(directory, (lock, *parts))
    if not create:
        require_directory(directory)
    file_lock = FileLock(directory / lock, timeout=patience)
    try:
        if create:
            directory.mkdir(parents=True, exist_ok=True)
        held = HeldDirectory(directory)
        file_lock.acquire()
    except Timeout:
        raise InUseError(
            f"{directory}: another process is writing here; wait for it, or choose another "
            "directory"
        ) from None
    except (OSError, NotImplementedError) as error:
        reason = getattr(error, "strerror", None) or "its file system has no locks"
        raise _error_class(error)(
            f"{directory}: cannot be written ({reason}); choose another directory"
        ) from error
    if held.is_gone:  # filelock has created the directory again
        file_lock.release()
        with contextlib.suppress(OSError):
            (directory / lock).unlink(missing_ok=True)
            directory.rmdir()
        raise moved(directory)
    try:
        yield
    finally:
        file_lock.release()


def is_locked(directory: Path) -> bool:
    """Whether a process holds :func:`lock_directory`; takes the lock for an instant to see."""
    path = directory / _LOCK
    file_lock = FileLock(path, timeout=0)
    try:
        if path.is_file() and not path.is_symlink():
            file_lock.acquire()
            file_lock.release()
    except Timeout:
        return True
    except (OSError, NotImplementedError):  # not writable, so no process here holds it
        return False
    return False


@contextlib.contextmanager
def atomic_directory(out: Path) -> Iterator[Path]:
    """Yield a new folder that is renamed to ``out`` after the block, or removed if that raises.

    out: must not exist, or be an empty directory. A killed writer leaves a hidden folder beside
    it, which the next writer removes. Raises HoldfastError if it cannot be written.
    """
    out = Path(os.path.realpath(out))  # write to a symbolic link's target
    beside = out.with_name(f".{out.name}.part")
    folder = beside / "new"
    refuse_links(out.parent, (beside.name,))
    with lock_directory(beside, parts=(folder.name,)):
        try:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            yield folder
            _settle(folder)
            os.replace(folder, out)
            flush_directory(out.parent)
        except OSError as error:
            raise _unwritable(out, error) from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            with contextlib.suppress(OSError):
                (beside / _LOCK).unlink(missing_ok=True)
                beside.rmdir()  # fails if anything else is there


def _settle(folder: Path) -> None:
    """Flush every file to disk and give it the folder's read permissions."""
    for path in (path for path in folder.rglob("*") if path.is_file()):
        with contextlib.suppress(OSError):
            path.chmod(folder.stat().st_mode & 0o666)
        with path.open("rb") as file:
            os.fsync(file.fileno())
    flush_directory(folder)


def append(path: Path, text: str) -> int:
    """Add text (UTF-8) to the end of a file and flush it to disk; return the file's size in bytes.

    On a full disk the file stays as it was; a killed process may leave part of the text. Raises
    HoldfastError if the file is a link or cannot be written.
    """
    size = None
    try:
        with unshared(path).open("ab") as file:
            size = file.tell()
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
            return file.tell()
    except OSError as error:
        if size is not None:
            with contextlib.suppress(OSError):
                os.truncate(path, size)
        raise _error_class(error)(
            f"{path}: cannot be written ({error.strerror or error}); "
            "free some space, then run the same command again"
        ) from error


def cut(path: Path, size: int) -> None:
    """Truncate a file; HoldfastError if it is a link or cannot be written."""
    try:
        os.truncate(unshared(path), size)
    except OSError as error:
        raise HoldfastError(f"{path}: cannot be written ({error.strerror or error})") from error


def unshared(path: Path) -> Path:
    """Return :func:`own_file` of a path; if the file has other hard links, a copy takes its place.

    So a hard-linked copy of its directory stays unchanged.
    """
    if own_file(path).exists() and path.stat().st_nlink > 1:
        with atomic_write(path) as temporary:
            shutil.copy2(path, temporary)
    return path


@contextlib.contextmanager
def atomic_write(path: Path, *, in_folder: bool = False, parents: bool = False) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; on success it is flushed and renamed over it.

    in_folder: the temporary path is in a folder of its own, for a library that writes more files
    beside it; so everything that a killed writer leaves is known to be ours. parents: create
    missing parent folders; otherwise a directory that was moved meanwhile is not created again.
    Raises HoldfastError, with ``path`` unchanged, if it cannot be written.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    temporary = part / path.name if in_folder else part
    try:
        if parents:
            path.parent.mkdir(parents=True, exist_ok=True)
        if in_folder:
            part.mkdir(exist_ok=True)
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        os.replace(temporary, path)
        flush_directory(path.parent)
    except OSError as error:
        raise _unwritable(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
            if in_folder:
                remove_folder(part)


def _error_class(error: BaseException) -> type[HoldfastError]:
    # Errors of libraries have no errno, only the system's words for it.
    full = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    by_number = getattr(error, "errno", None) in full
    by_words = any(os.strerror(number) in str(error) for number in full)
    return NoSpaceError if by_number or by_words else UnwritableError


def make_folder(folder: Path, *, parents: bool = False) -> Path:
    """Create a folder if it is missing; return it. HoldfastError if its directory was moved."""
    try:
        folder.mkdir(exist_ok=True, parents=parents)
        return folder
    except OSError as error:
        raise _unwritable(folder, error) from error


def _unwritable(path: Path, error: OSError) -> HoldfastError:
    if not path.parent.is_dir() and isinstance(error, FileNotFoundError):
        return moved(path.parent)
    return _error_class(error)(
        f"{path}: cannot be written ({error.strerror or error}); free some space or choose another "
        "place, then run the same command again"
    )


def write_text_atomically(path: Path, text: str, *, parents: bool = False) -> None:
    """Replace a text file (UTF-8) by :func:`atomic_write`."""
    with atomic_write(path, parents=parents) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any, *, parents: bool = False) -> None:
    """Replace a JSON file by :func:`atomic_write`; ValueError for NaN, which is not JSON."""
    write_text_atomically(path, json_text(value), parents=parents)


def json_text(value: Any) -> str:
    """The text that :func:`write_json` writes."""
    return json.dumps(value, indent=1, allow_nan=False) + "\n"


def read_bytes(path: Path) -> bytes:
    """Read a file; HoldfastError if it is missing or no regular file."""
    try:
        return regular(path).read_bytes()
    except OSError as error:
        raise HoldfastError(f"{path}: cannot be read ({error.strerror})") from error


def read_json(path: Path) -> Any:
    """Read a JSON file; HoldfastError if it is missing or damaged."""
    try:
        return json.loads(regular(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise HoldfastError(f"{path}: no such file") from None
    except OSError as error:
        raise HoldfastError(f"{path}: cannot be read ({error.strerror})") from error
    # ValueError: damaged, or a number of too many digits; RecursionError: brackets nested too deep.
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


def take_place(
    directory: Path, manifest: str, names: Collection[str], stale: Collection[str] = ()
) -> None:
    """Record files of a directory as ours before they are written, and remove stale ones.

    manifest: name of the file that lists what earlier calls wrote; names: the files to be written,
    relative to the directory; stale: files to be removed if an earlier call wrote them. Raises
    HoldfastError if a file of ``names`` exists that no earlier call wrote, and for a link there.
    """
    record = directory / manifest
    refuse_links(directory, {manifest, *names, *(str(Path(name).parent) for name in names)} - {"."})
    listed = read_json(record) if record.exists() else []
    if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
        raise HoldfastError(f"{record}: is no list of files; choose another directory")
    foreign = sorted(name for name in {*names} - {*listed} if (directory / name).exists())
    if foreign:
        others = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
        raise HoldfastError(
            f"{directory / foreign[0]}{others}: would be overwritten, and this command did not "
            "write it; move it away, or choose another directory"
        )
    # Before any file, so that a killed call leaves none that is not listed.
    write_json(record, sorted({*listed, *names} - {*stale}), parents=True)
    remove_named(directory, {*listed} & {*stale})


def check_place(out: Path) -> None:
    """Raise HoldfastError unless ``out`` does not exist or is an empty directory."""
    try:
        taken = next(out.iterdir(), None)
    except FileNotFoundError:
        return
    except OSError as error:
        raise HoldfastError(
            f"{out}: is no directory that can be read ({error.strerror}); choose another place"
        ) from None
    if taken is not None:
        raise HoldfastError(f"{out}: holds {taken.name}; choose an empty or a new directory")
