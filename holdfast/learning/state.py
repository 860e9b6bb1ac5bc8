"""A trajectory's files: atomic commits of the recall matrix and the state after each task.

``state/commit.json`` names the files of the last commit with their sizes and digests and holds
the matrix; renaming it into place is the commit. File names contain the task's number, so a
commit's files are never overwritten. Each commit also names the files of the one before that are no
longer needed; ``sweep`` removes those and temporary files of killed runs, and nothing else.
"""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from holdfast.core.errors import HoldfastError
from holdfast.core.file_checks import regular, remove_named, remove_unfinished
from holdfast.core.files import atomic_write, make_folder
from holdfast.results import RecallMatrix
from holdfast.results.record import commit_file, damaged, read_commit, write_commit

# The files and folders that are written in a trajectory's directory.
PARTS = (
    *("config.json", "matrix.csv", "metrics.json", "log.jsonl"),
    *("state", "state/commit.json", "factors", "items", "replay", "capability"),
)


@dataclass(frozen=True)
class Commit:
    """The committed state after a task.

    completed: tasks learned; tasks: their fingerprints; log_bytes: length of log.jsonl; snapshot:
    the task after which the dense matrices were last copied, 0 for none; files: relative path ->
    size in bytes and sha256; superseded: files of the commit before that are no longer needed.
    """

    completed: int = 0
    tasks: list[str] = field(default_factory=list)
    matrix: RecallMatrix = field(default_factory=RecallMatrix)
    log_bytes: int = 0
    snapshot: int = 0
    files: dict[str, tuple[int, str]] = field(default_factory=dict)
    superseded: list[str] = field(default_factory=list)

    def values(self) -> dict[str, Any]:
        """As JSON values."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return values | {"matrix": self.matrix.to_csv()}


class Store:
    """The files of one trajectory's directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._pointer = commit_file(directory)

    def last_commit(self) -> Commit:
        """The last commit; an empty one before the first. HoldfastError when it is damaged."""
        if not self._pointer.exists():
            # matrix.csv is written after a commit, so there has been one.
            if (self.directory / "matrix.csv").exists():
                raise damaged(self._pointer, "is missing")
            return Commit()
        while True:
            values = read_commit(self.directory)
            commit = self.parsed(values)
            complaint = self._complaint(commit)
            if complaint is None:
                return commit
            # Another process may have committed meanwhile and removed this commit's files.
            if read_commit(self.directory) == values:
                raise complaint

    def parsed(self, values: Any) -> Commit:
        """The inverse of :meth:`Commit.values`; HoldfastError when it is damaged."""
        try:
            files = {name: (int(size), str(sha)) for name, (size, sha) in values["files"].items()}
            matrix = RecallMatrix.from_csv(values["matrix"], "its matrix")
            superseded = [str(name) for name in values.get("superseded", [])]
            read = {"files": files, "matrix": matrix, "superseded": superseded}
            return Commit(**{**values, **read})
        except (KeyError, AttributeError, TypeError, ValueError, HoldfastError) as error:
            raise damaged(self._pointer, f"is no commit ({error})") from None

    def _complaint(self, commit: Commit) -> HoldfastError | None:
        """The error for the first file that is missing or of the wrong size; None if all fit."""
        for name, (size, _) in commit.files.items():
            path = self.directory / name
            try:
                present = path.stat().st_size
            except FileNotFoundError:
                return damaged(path, "is missing")
            if present != size:
                return damaged(path, f"has {present} bytes instead of {size}")
        return None

    def save(self, name: str, tensors: dict[str, Tensor]) -> tuple[int, str]:
        """Write CPU tensors to the file ``name``; return its size in bytes and sha256."""
        path = self.directory / name
        make_folder(path.parent)
        with atomic_write(path, in_folder=True) as temporary:
            try:
                save_file(tensors, temporary)
            except SafetensorError as error:
                # safetensors reports a full disk as its own error.
                raise OSError(str(error)) from error
            # safetensors makes files that only their owner may read; use the folder's permissions.
            with contextlib.suppress(OSError):
                temporary.chmod(path.parent.stat().st_mode & 0o666)
        try:
            return path.stat().st_size, _digest(path)
        except OSError as error:  # such as a directory that was moved just now
            raise damaged(path, f"cannot be read ({error.strerror})") from error

    def load(self, commit: Commit, name: str) -> dict[str, Tensor]:
        """Read a file of a commit; HoldfastError when its digest is not the committed one."""
        path = self.directory / name
        try:
            if _digest(path) != commit.files[name][1]:
                raise damaged(path, "has other contents than were committed")
            # Cloned: at a file's unaligned addresses products may round differently.
            return {key: tensor.clone() for key, tensor in load_file(path).items()}
        except OSError as error:
            raise damaged(path, f"cannot be read ({error.strerror})") from error

    def commit(self, commit: Commit) -> None:
        """Write ``commit`` as the last one, then remove the files that it supersedes."""
        write_commit(self.directory, commit.values())
        self.sweep(commit)

    def sweep(self, commit: Commit) -> None:
        """Remove files that ``commit`` supersedes, and temporary files of a killed run."""
        remove_named(self.directory, commit.superseded)
        for folder in (".", "state", "factors", "replay", "items"):
            remove_unfinished(self.directory / folder)


def factors_file(task: int) -> str:
    """Path of a task's trained factors."""
    return f"factors/task-{task:04d}.safetensors"


def snapshot_file(task: int) -> str:
    """Path of the copy of the dense matrices after a task."""
    return f"state/dense-{task:04d}.safetensors"


def mechanism_file(name: str, task: int) -> str:
    """Path of the state of an anchor, or of the allocation rule, after a task."""
    return f"state/{name}-{task:04d}.safetensors"


def _digest(path: Path) -> str:
    with regular(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
