"""state/commit.json: the last commit of a trajectory, and the matrix in it. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.core.config import sha256_of
from holdfast.core.errors import HoldfastError
from holdfast.core.files import make_folder, read_json, write_json
from holdfast.results.matrix import RecallMatrix


def commit_file(directory: Path) -> Path:
    """The path of a trajectory's last commit."""
    return directory / "state" / "commit.json"


def write_commit(directory: Path, values: Mapping[str, Any]) -> None:
    """Replace the last commit atomically. values: JSON values, stored with their sha256."""
    make_folder(commit_file(directory).parent)
    write_json(commit_file(directory), {**values, "sha256": sha256_of(values)})


def read_commit(directory: Path) -> dict[str, Any]:
    """The values of the last commit; HoldfastError when it is missing or was changed."""
    path = commit_file(directory)
    values = read_json(path)
    if not isinstance(values, dict) or values.pop("sha256", None) != sha256_of(values):
        raise damaged(path, "is no commit as it was written")
    return values


def completed_in(directory: Path) -> int:
    """The number of tasks that a trajectory's last commit holds; 0 before the first commit.

    Raises HoldfastError when the commit was changed.
    """
    return int(read_commit(directory)["completed"]) if commit_file(directory).exists() else 0


def read_matrix(directory: Path) -> RecallMatrix:
    """The recall matrix of a trajectory: from its last commit, else from matrix.csv, else empty.

    ``matrix.csv`` is derived from the commit and may be older or incomplete. Raises HoldfastError
    when the file that is read is damaged.
    """
    if commit_file(directory).exists():
        text = read_commit(directory)["matrix"]
        return RecallMatrix.from_csv(text, f"{commit_file(directory)}: matrix")
    path = directory / "matrix.csv"
    return RecallMatrix.load(path) if path.exists() else RecallMatrix()


def damaged(path: Path, reason: str) -> HoldfastError:
    """The error for a trajectory's file that differs from what was committed."""
    return HoldfastError(
        f"{path}: {reason}; this trajectory is damaged: restore the file, or start again in a new "
        "directory"
    )
