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

from holdfast.core.errors import HoldfastError, InUseError, NoSpaceError
from holdfast.core.own import (
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
MOMENT = 0.3  # seconds: is_locked may hold a lock for a moment
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

    lock: the name of the lock's file, for a directory in which several things are written;
    patience: seconds to wait for another process that holds it, or ``FOR_EVER``; parts: what may be
    written there; create: make the directory where it is missing. Raises InUseError when it still
    holds it then, HoldfastError when a part is a link, the directory is missing, cannot be written
    or its file system has no locks.
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
    if held.is_gone:  # the lock's library has made it anew
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
    """Whether somebody holds :func:`lock_directory` of a directory; it is locked for a moment."""
    path = directory / _LOCK
    file_lock = FileLock(path, timeout=0)
    try:
        if path.is_file() and not path.is_symlink():
            file_lock.acquire()
            file_lock.release()
    except Timeout:
        return True
    except (OSError, NotImplementedError):  # it cannot be written, so nobody here does
        return False
    return False


@contextlib.contextmanager
def atomic_directory(out: Path) -> Iterator[Path]:
    """Yield a new folder, renamed to ``out`` at the end of the block, removed if that raises.

    out: must not exist, or be an empty directory. A killed writer leaves a hidden folder beside
    it, which the next writer removes. Raises HoldfastError when it cannot be written.
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
                beside.rmdir()  # whatever else is there stays


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
    HoldfastError when the file is a link or cannot be written.
    """
    size = None
    try:
        with unshared(own_file(path)).open("ab") as file:
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
    """Truncate a file; HoldfastError when it is a link or cannot be written."""
    try:
        os.truncate(unshared(own_file(path)), size)
    except OSError as error:
        raise HoldfastError(f"{path}: cannot be written ({error.strerror or error})") from error


def unshared(path: Path) -> Path:
    """The path of a file that is about to change; a copy takes its place where it has other names.

    So a copy of a directory by hard links keeps what it had.
    """
    if path.exists() and path.stat().st_nlink > 1:
        with atomic_write(path) as temporary:
            shutil.copy2(path, temporary)
    return path


def extend(path: Path, text: str) -> None:
    """Append text (UTF-8) to a file atomically, by replacing the file with an extended copy.

    For files that seldom grow. Raises HoldfastError when the copy cannot be written.
    """
    with atomic_write(path) as temporary:
        if path.exists():
            shutil.copyfile(regular(path), temporary)
        with temporary.open("ab") as file:
            file.write(text.encode())


@contextlib.contextmanager
def atomic_write(path: Path, *, in_folder: bool = False, parents: bool = False) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; on success it is flushed and renamed over it.

    in_folder: the temporary path lies in a folder of its own, for a library that makes further
    files beside it; so all that a killed writer leaves is known to be ours.
    parents: makes the folders in which ``path`` lies. Without it they must exist, so a work's
    directory that is moved meanwhile is not made again.
    Raises HoldfastError when a folder is missing, the disk is full or the place cannot be written;
    ``path`` is then unchanged.
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
    # Errors of libraries have no number, only the system's words for it.
    full = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    by_number = getattr(error, "errno", None) in full
    by_words = any(os.strerror(number) in str(error) for number in full)
    return NoSpaceError if by_number or by_words else HoldfastError


def make_folder(folder: Path, *, parents: bool = False) -> Path:
    """Make a folder where it is missing, and return it; ``parents``: also those in which it lies.

    Raises HoldfastError where it cannot be made, as in a directory that was moved.
    """
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
    """Replace a text file (UTF-8) atomically; ``parents``: see :func:`atomic_write`."""
    with atomic_write(path, parents=parents) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any, *, parents: bool = False) -> None:
    """Replace a JSON file atomically; ``parents``: see :func:`atomic_write`.

    Raises ValueError for NaN, which is not JSON.
    """
    write_text_atomically(path, json_text(value), parents=parents)


def json_text(value: Any) -> str:
    """The text that :func:`write_json` writes."""
    return json.dumps(value, indent=1, allow_nan=False) + "\n"


def read_bytes(path: Path) -> bytes:
    """Read a file; HoldfastError when it is missing or no regular file."""
    try:
        return regular(path).read_bytes()
    except OSError as error:
        raise HoldfastError(f"{path}: cannot be read ({error.strerror})") from error


def read_json(path: Path) -> Any:
    """Read a JSON file; HoldfastError when it is missing or damaged."""
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
    """Make files of a directory ours, before they are written, and remove those that are stale.

    manifest: the name of the file that lists what earlier calls wrote; names: of the files to be
    written, relative to the directory; stale: of files to be removed where an earlier call wrote
    them. Raises HoldfastError for a file of these names that no earlier call wrote, for a link in
    the directory, and when it cannot be written.
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
    # First, so that a killed call has nothing here that it does not know again.
    write_json(record, sorted({*listed, *names} - {*stale}), parents=True)
    remove_named(directory, {*listed} & {*stale})


def check_place(out: Path) -> None:
    """Raise HoldfastError unless a directory can be made there, or is there and empty."""
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
