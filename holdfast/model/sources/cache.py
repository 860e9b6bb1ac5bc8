"""The cache: converted models with their manifests, downloads, digests of files.

models/NAME/   a model as save_pretrained writes it, and its manifest, holdfast.json
downloads/     wheels, whole or in part, and GGUF files, while a model is fetched
general/, own/ texts that a model wrote before it learned anything, for runs and for memories
gates/         the tuning of a memory's gate for each model
documents/     the facts that a model proposed from documents, one file per passage
digests/       sha256 of files elsewhere, by path, size and modification time
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from holdfast.core.errors import HoldfastError, reason_of
from holdfast.core.file_checks import refuse_links, regular, remove_folder
from holdfast.core.files import json_text
from holdfast.core.reporting import NoteReport

FORMAT = 1  # of the model directories and their manifests
MANIFEST = "holdfast.json"
# The files that `save_pretrained` writes for a model and its tokenizer, and the manifest.
_OF_A_MODEL = re.compile(
    r"(generation_)?config\.json|model.*\.safetensors|model\.safetensors\.index\.json|"
    r"(added_|special_)?tokens(_map)?\.json|tokenizer.*|vocab\.\w+|merges\.txt|"
    r"chat_template\.\w+|" + re.escape(MANIFEST)
)

# report(done, total, what): bytes done, of how many, at what work; if total is 0, only a message.


def cache_directory() -> Path:
    """``$HOLDFAST_CACHE``, else ``$XDG_CACHE_HOME/holdfast``, else ``~/.cache/holdfast``."""
    if named := os.environ.get("HOLDFAST_CACHE"):
        return Path(named).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification says to ignore relative paths.
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "holdfast"


def model_directory(key: str) -> Path:
    """The directory of this key's model in the cache; it need not exist."""
    return cache_directory() / "models" / key


def write_manifest(folder: Path, **facts: Any) -> None:
    """Write the manifest of a finished directory: ``facts``, and the bytes of each file."""
    sizes = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
    manifest = {"format": FORMAT, **facts, "files": sizes}
    (folder / MANIFEST).write_text(json_text(manifest), encoding="utf-8")


def read_manifest(directory: Path) -> dict[str, Any] | None:
    """The manifest of a directory; None if there is none, or a file that it names is not whole.

    Raises HoldfastError if the manifest has another format.
    """
    try:
        manifest = json.loads(regular(directory / MANIFEST).read_text(encoding="utf-8"))
        kind, sizes = manifest["format"], manifest["files"]
        if kind == FORMAT:
            whole = all((directory / name).stat().st_size == sizes[name] for name in sizes)
            return dict(manifest) if whole and "config.json" in sizes else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    raise HoldfastError(
        f"{directory}: is of format {kind} of the cache, and this Holdfast knows {FORMAT}; "
        "remove that directory, or name another cache in HOLDFAST_CACHE"
    )


def remove_incomplete(directory: Path) -> None:
    """Remove a model's directory that was found incomplete.

    Raises HoldfastError if it cannot be removed, or is a link or holds a file that Holdfast does
    not write for a model; then nothing is removed.
    """
    if directory.is_symlink():
        raise HoldfastError(
            f"{directory}: is a link to something that is no complete model; remove the link"
        )
    try:
        if directory.is_dir():
            _refuse_foreign(directory)
            remove_folder(directory)
        else:
            directory.unlink(missing_ok=True)
    except OSError as error:
        raise HoldfastError(
            f"{directory}: is incomplete and cannot be removed ({error.strerror}); remove it"
        ) from error


def _refuse_foreign(directory: Path) -> None:
    """Raise HoldfastError if a directory holds a file that no model made here has."""
    listed: set[str] = set()
    with suppress(OSError, ValueError, KeyError, TypeError):
        listed = set(json.loads(regular(directory / MANIFEST).read_text("utf-8"))["files"])
    for path in sorted(directory.iterdir()):
        if path.is_dir() or not (path.name in listed or _OF_A_MODEL.fullmatch(path.name)):
            raise HoldfastError(
                f"{directory}: holds {path.name} and is no model that was made here; move it "
                "elsewhere, or name another cache in HOLDFAST_CACHE"
            )


@contextmanager
def locked(key: str, report: NoteReport) -> Iterator[None]:
    """Hold the lock of a model's key within the block; wait for a process that has it.

    Raises HoldfastError if the cache cannot be written, or if a part of it is a link.
    """
    path = cache_directory() / "models" / f".{key}.lock"
    refuse_links(cache_directory(), ("models", f"models/{path.name}", "downloads"))
    lock = FileLock(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            report(0, 0, f"another process is fetching {key}; waiting for it")
            lock.acquire()
    except (OSError, NotImplementedError) as error:
        raise unwritable(path.parent, error) from error
    try:
        yield
    finally:
        lock.release()


def unwritable(place: Path, error: BaseException) -> HoldfastError:
    """The error for a place that cannot be written, in most cases because the disk is full."""
    reason = getattr(error, "strerror", None) or reason_of(error)
    return HoldfastError(
        f"{place}: cannot be written ({reason}); free some space or name another cache in "
        "HOLDFAST_CACHE, then run the same command again"
    )


def check_space(needed: int) -> None:
    """Raise HoldfastError if the cache's disk has fewer than ``needed`` bytes free."""
    place = cache_directory()
    while not place.exists() and place != place.parent:
        place = place.parent
    free = shutil.disk_usage(place).free
    if free < needed:
        raise HoldfastError(
            f"{cache_directory()}: {needed / 1e6:,.0f} MB are needed while converting, and "
            f"{free / 1e6:,.0f} MB are free; free some space or name another cache in "
            "HOLDFAST_CACHE"
        )
