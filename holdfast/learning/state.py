"""What a trajectory has on disk: whole commits, each a row and the state that belongs to it.

``state/commit.json`` names the files of the last commit with their sizes and digests and holds
the matrix; renaming it into place is the commit. Files carry their task's number, so none that a
commit needs is ever overwritten, and whatever no commit names is swept away. The folders
``state`` and ``factors`` are the store's own.
"""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from holdfast.core.errors import HoldfastError
from holdfast.core.files import read_json, remove_unfinished, replacing, write_json
from holdfast.results import RecallMatrix


@dataclass(frozen=True)
class Commit:
    """A boundary that is safe on disk.

    completed: tasks learned; tasks: their fingerprints; matrix: the text of matrix.csv;
    boxed: items whose answer opened a box, and items, per observed row; log_bytes: length of
    log.jsonl; snapshot: the task after which the dense matrices were copied, 0 for never;
    files: relative path -> size in bytes and sha256.
    """

    completed: int = 0
    tasks: list[str] = field(default_factory=list)
    matrix: str = ""
    boxed: dict[str, list[int]] = field(default_factory=dict)
    log_bytes: int = 0
    snapshot: int = 0
    files: dict[str, tuple[int, str]] = field(default_factory=dict)


class Store:
    """The files of one trajectory's directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._pointer = directory / "state" / "commit.json"

    def last_commit(self) -> Commit:
        """The last commit; an empty one before the first. HoldfastError when it is damaged."""
        if not self._pointer.exists():
            # The matrix is written after the first commit only.
            if (self.directory / "matrix.csv").exists():
                raise self._damaged(self._pointer, "is missing")
            return Commit()
        while True:
            values = read_json(self._pointer)
            commit = self._parsed(values)
            complaint = self._complaint(commit)
            if complaint is None:
                return commit
            # Another process may have committed meanwhile and swept this commit's files away.
            if read_json(self._pointer) == values:
                raise complaint

    def _parsed(self, values: Any) -> Commit:
        try:
            missing = [field.name for field in fields(Commit) if field.name not in values]
            if missing:
                raise ValueError(f"it has no {missing[0]}")
            files = {name: (int(size), str(sum_)) for name, (size, sum_) in values["files"].items()}
            commit = Commit(**{**values, "files": files})
            if len(commit.tasks) != commit.completed:
                raise ValueError(f"{commit.completed} tasks, {len(commit.tasks)} fingerprints")
            RecallMatrix.from_csv(commit.matrix, "its matrix")
        except (AttributeError, TypeError, ValueError, HoldfastError) as error:
            raise self._damaged(self._pointer, f"is no commit ({error})") from None
        return commit

    def _complaint(self, commit: Commit) -> HoldfastError | None:
        """What is wrong with the files of a commit, by their names and sizes."""
        for name, (size, _) in commit.files.items():
            path = self.directory / name
            try:
                found = path.stat().st_size
            except FileNotFoundError:
                return self._damaged(path, "is missing")
            if found != size:
                return self._damaged(path, f"has {found} bytes instead of {size}")
        return None

    def save(self, name: str, tensors: dict[str, Tensor]) -> tuple[int, str]:
        """Write the host's tensors to a file of the directory; return its size and digest."""
        path = self.directory / name
        with replacing(path) as temporary:
            try:
                save_file(tensors, temporary)
            except SafetensorError as error:
                # The library reports a full disk as its own error.
                raise OSError(str(error)) from error
            # The library makes files that nobody else may read; the folder's own rights apply.
            with contextlib.suppress(OSError):
                temporary.chmod(path.parent.stat().st_mode & 0o666)
        return path.stat().st_size, _digest(path)

    def load(self, commit: Commit, name: str) -> dict[str, Tensor]:
        """Read a file of a commit; HoldfastError when its bytes are not what was committed."""
        path = self.directory / name
        try:
            if _digest(path) != commit.files[name][1]:
                raise self._damaged(path, "has other contents than were committed")
            return load_file(path)
        except OSError as error:
            raise self._damaged(path, f"cannot be read ({error.strerror})") from error

    def commit(self, commit: Commit) -> None:
        """Make a commit the last one, then remove the files that it does not name."""
        write_json(self._pointer, asdict(commit))
        self.sweep(commit)

    def sweep(self, commit: Commit) -> None:
        """Remove what the last commit does not name: replaced files, and those of a killed run."""
        kept = {self._pointer, *(self.directory / name for name in commit.files)}
        for folder in ("state", "factors"):
            for path in (self.directory / folder).glob("*"):
                ours = path.suffix == ".safetensors" or path.name.startswith(".")
                if ours and path not in kept:
                    with contextlib.suppress(OSError):
                        path.unlink()
        for folder in (".", "replay"):
            remove_unfinished(self.directory / folder)

    def _damaged(self, path: Path, reason: str) -> HoldfastError:
        return HoldfastError(
            f"{path}: {reason}; this trajectory is damaged: restore the file, or start again in "
            "a new directory"
        )


def factors_file(task: int) -> str:
    """Where the trained factors of a task are kept."""
    return f"factors/task-{task:04d}.safetensors"


def snapshot_file(task: int) -> str:
    """Where the dense matrices after a task are kept."""
    return f"state/dense-{task:04d}.safetensors"


def mechanism_file(name: str, task: int) -> str:
    """Where the state of an anchor or a rule after a task is kept."""
    return f"state/{name}-{task:04d}.safetensors"


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
