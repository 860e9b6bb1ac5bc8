"""A trajectory's files: atomic commits of the recall matrix and the state after each task.

``state/commit.json`` names the files of the last commit with their sizes and digests and holds
the matrix; renaming it into place is the commit. File names contain the task's number, so a
commit's files are never overwritten. Each commit also names the files of the one before that are no
longer needed; ``sweep`` removes those and temporary files of killed runs, and nothing else.

Dense matrices are not written with every task. They are the pretrained ones plus the folded
factors, so the factors of the tasks since the last copy are enough; folding them again in the
same order gives the same bits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from holdfast.core.errors import HoldfastError
from holdfast.core.file_checks import regular, remove_named, remove_unfinished
from holdfast.core.files import make_folder
from holdfast.learning.learner import Learner
from holdfast.learning.task import TaskReport
from holdfast.model.tensors import save_tensors
from holdfast.results import RecallMatrix
from holdfast.results.record import commit_file, damaged, read_commit, write_commit

# The files and folders that are written in a trajectory's directory.
PARTS = (
    *("config.json", "matrix.csv", "metrics.json", "log.jsonl"),
    *("state", "state/commit.json", "factors", "items", "replay", "capability"),
)
Files = dict[str, tuple[int, str]]  # size in bytes and sha256, by path below the directory

# Marks an entry of a mechanism's file that equals one of the task's factors (in their own file).
_IS_FACTORS = " (the factors)"


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
    files: Files = field(default_factory=dict)
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
        save_tensors(path, tensors)
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


def _state_file(name: str, task: int) -> str:
    """Path of the state of a mechanism, or of the copy of the dense matrices, after a task."""
    return f"state/{name}-{task:04d}.safetensors"


def _digest(path: Path) -> str:
    with regular(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass(frozen=True)
class Changes:
    """The tensors to write for the next commit, valid until the next task is learned.

    tensors: by file, on the CPU; unchanged: files of the last commit that are still needed;
    snapshot: that field of the next commit.
    """

    tensors: dict[str, dict[str, Tensor]]
    unchanged: Files
    snapshot: int

    def write(self, store: Store) -> Files:
        """Write the tensors; return all files of the next commit."""
        written = {name: store.save(name, tensors) for name, tensors in self.tensors.items()}
        return self.unchanged | written


def changes_of(learner: Learner, report: TaskReport, past: Commit) -> Changes:
    """Copy the state that the last task changed to the CPU; past: the last commit."""
    task, keep = report.task, learner.config.keep
    tensors = {factors_file(task): _on_host(report.factors)}
    snapshot = past.snapshot
    if learner.allocation.after_task == "merge" and task % keep.snapshot_every == 0:
        snapshot = task
        tensors[_state_file("dense", task)] = _on_host(_upright(learner, learner.workspace.dense()))
    after_task = learner.allocation.after_task
    states = {name: anchor.pack(learner.states[name]) for name, anchor in learner.anchors}
    if after_task != "freeze":  # a freezing rule's state is rebuilt from the factors of every task
        states["allocation"] = dict(learner.allocation_state)
    for mechanism, state in states.items():
        if state:
            written = _pointing_at(report.factors, state)
            tensors[_state_file(mechanism, task)] = _on_host(written)
    tasks = range(1, task + 1) if keep.factors else history(after_task, task, snapshot)
    needed = [*map(factors_file, tasks), _state_file("dense", snapshot)]
    unchanged = {name: past.files[name] for name in needed if name in past.files}
    return Changes(tensors, unchanged, snapshot)


@torch.no_grad()
def restore_learner(store: Store, learner: Learner, commit: Commit) -> None:
    """Restore a new learner to the state in a commit."""
    workspace, rule = learner.workspace, learner.allocation
    if commit.completed == 0:
        return
    if rule.after_task == "merge" and commit.snapshot:
        workspace.set_dense(
            _upright(learner, store.load(commit, _state_file("dense", commit.snapshot)))
        )
    for task in history(rule.after_task, commit.completed, commit.snapshot):
        workspace.write(store.load(commit, factors_file(task)))
        if rule.after_task != "merge" or task > commit.snapshot:
            learner.allocation_state = rule.retire(learner.allocation_state, workspace)
        else:
            workspace.clear()  # the snapshot contains this task already
    factors = store.load(commit, factors_file(commit.completed))
    device = learner.backbone.device
    factors = {name: tensor.to(device) for name, tensor in factors.items()}
    for name, anchor in learner.anchors:
        learner.states[name] = anchor.unpack(_stored_state(store, commit, name, factors))
    if rule.after_task != "freeze":  # a freezing rule's state was rebuilt by `retire` above
        stored = _stored_state(store, commit, "allocation", factors)
        learner.allocation_state = rule.unpack(stored)
    learner.completed = commit.completed


def _stored_state(
    store: Store, commit: Commit, name: str, factors: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """A mechanism's state in a commit, on the device of the task's factors; empty if it had none.

    The inverse of :func:`_pointing_at`.
    """
    path = _state_file(name, commit.completed)
    if path not in commit.files:
        return {}
    tensors = {}
    device = next(iter(factors.values())).device
    for key, tensor in store.load(commit, path).items():
        name = key.removesuffix(_IS_FACTORS)
        marked = name != key
        tensors[name] = factors[name.partition(" ")[2]].clone() if marked else tensor.to(device)
    return tensors


def _upright(learner: Learner, matrices: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Convert between the modules' orientation and the files' [d_out, d_in]; its own inverse."""
    layers = learner.workspace.layers
    turned = {
        name for name, layer in layers.items() if getattr(layer.module, "fan_in_fan_out", False)
    }
    return {name: matrix.t() if name in turned else matrix for name, matrix in matrices.items()}


def _on_host(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()}


def _pointing_at(factors: Mapping[str, Tensor], state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Replace tensors of ``state`` that equal the task's factors by empty marked entries.

    The factors have their own file; SI and online EWC hold a copy of them as their reference.
    """
    written = {}
    for key, tensor in state.items():
        factor = factors.get(key.partition(" ")[2])
        if factor is not None and factor.dtype == tensor.dtype and factor.equal(tensor):
            written[key + _IS_FACTORS] = tensor.new_empty(0)
        else:
            written[key] = tensor
    return written


def history(after_task: str, completed: int, snapshot: int) -> range:
    """The tasks whose factors a reload needs, always including the last.

    after_task: the allocation rule's; snapshot: as in :class:`Commit`.
    """
    if after_task == "keep":
        return range(completed, completed + 1)
    if after_task == "merge":
        return range(min(snapshot + 1, completed), completed + 1)
    return range(1, completed + 1)
