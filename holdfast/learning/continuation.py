"""Write a learner's state to files and restore it, bit for bit.

Dense matrices are not written with every task. They are the pretrained ones plus the folded
factors, so the factors of the tasks since the last copy are enough; folding them again in the
same order gives the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.learning.boundary import TaskReport
from holdfast.learning.learner import Learner
from holdfast.learning.state import Commit, Store, factors_file, mechanism_file, snapshot_file

Files = dict[str, tuple[int, str]]

# Marks an entry of a mechanism's file that equals one of the task's factors (in their own file).
_IS_FACTORS = " (the factors)"


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
        tensors[snapshot_file(task)] = _on_host(_upright(learner, learner.workspace.dense()))
    for mechanism, state in _mechanisms(learner).items():
        if state:
            written = _pointing_at(report.factors, state)
            tensors[mechanism_file(mechanism, task)] = _on_host(written)
    after_task = learner.allocation.after_task
    tasks = range(1, task + 1) if keep.factors else history(after_task, task, snapshot)
    needed = [*map(factors_file, tasks), snapshot_file(snapshot)]
    unchanged = {name: past.files[name] for name in needed if name in past.files}
    return Changes(tensors, unchanged, snapshot)


@torch.no_grad()
def restore_learner(store: Store, learner: Learner, commit: Commit) -> None:
    """Restore a new learner to the state in a commit."""
    workspace, rule = learner.workspace, learner.allocation
    if commit.completed == 0:
        return
    if rule.after_task == "merge" and commit.snapshot:
        workspace.set_dense(_upright(learner, store.load(commit, snapshot_file(commit.snapshot))))
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
    """The tensors of a mechanism's state in a commit; empty if it had none."""
    path = mechanism_file(name, commit.completed)
    return _resolved(factors, store.load(commit, path)) if path in commit.files else {}


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


def _resolved(factors: Mapping[str, Tensor], stored: dict[str, Tensor]) -> dict[str, Tensor]:
    """The inverse of :func:`_pointing_at`, on the device of ``factors``."""
    tensors = {}
    device = next(iter(factors.values())).device
    for key, tensor in stored.items():
        name = key.removesuffix(_IS_FACTORS)
        marked = name != key
        tensors[name] = factors[name.partition(" ")[2]].clone() if marked else tensor.to(device)
    return tensors


def _mechanisms(learner: Learner) -> dict[str, dict[str, Tensor]]:
    states = {name: anchor.pack(learner.states[name]) for name, anchor in learner.anchors}
    remembered = learner.allocation.after_task == "freeze"  # rebuilt from the factors of every task
    return {**states, "allocation": {} if remembered else dict(learner.allocation_state)}


def history(after_task: str, completed: int, snapshot: int) -> range:
    """The tasks whose factors a reload needs, always including the last.

    after_task: the allocation rule's; snapshot: the task of the last copy of the dense
    matrices, 0 for none.
    """
    if after_task == "keep":
        return range(completed, completed + 1)
    if after_task == "merge":
        return range(min(snapshot + 1, completed), completed + 1)
    return range(1, completed + 1)
