"""Write a learner's state to files and restore it, bit for bit.

Dense matrices are not written with every task. They are the pretrained ones plus the folded
factors, so the factors of the tasks since the last copy are enough; folding them again in the
same order gives the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.learning.boundary import TaskReport
from holdfast.learning.config import Keep
from holdfast.learning.learner import Learner
from holdfast.learning.state import Commit, Store, factors_file, mechanism_file, snapshot_file

Files = dict[str, tuple[int, str]]

# Marks an entry of a mechanism's file that is the task's factors, which have their own file.
_IS_FACTORS = " (the factors)"


@dataclass(frozen=True)
class Changes:
    """The tensors to write for the next commit, valid until the next task is learned.

    tensors: by file, on the CPU; kept: files of the last commit; snapshot: of the next commit.
    """

    tensors: dict[str, dict[str, Tensor]]
    kept: Files
    snapshot: int

    def write(self, store: Store) -> Files:
        """Write the tensors; return all files of the next commit."""
        written = {name: store.save(name, tensors) for name, tensors in self.tensors.items()}
        return self.kept | written


def changes_of(learner: Learner, report: TaskReport, past: Commit) -> Changes:
    """The state that the last task changed, on the CPU."""
    task, keep = report.task, learner.config.keep
    tensors = {factors_file(task): learner.adapters.named(report.factors.cpu())}  # one transfer
    snapshot = past.snapshot
    if learner.allocation.fate == "folded" and task % keep.snapshot_every == 0:
        snapshot = task
        dense = {key: learner.adapters.dense(key) for key in learner.adapters.layers}
        tensors[snapshot_file(task)] = _on_host(dense)
    for mechanism, state in _mechanisms(learner).items():
        if state:
            written = _pointing_at(report.factors, state)
            tensors[mechanism_file(mechanism, task)] = _on_host(written)
    kept = [factors_file(number) for number in _needed(learner, task, snapshot, keep)]
    kept.append(snapshot_file(snapshot))
    return Changes(tensors, {key: past.files[key] for key in kept if key in past.files}, snapshot)


@torch.no_grad()
def restore_learner(store: Store, learner: Learner, commit: Commit) -> None:
    """Set a new learner to the state that a commit holds."""
    adapters, rule = learner.adapters, learner.allocation
    if commit.completed == 0:
        return
    if rule.fate == "folded" and commit.snapshot:
        for name, matrix in store.load(commit, snapshot_file(commit.snapshot)).items():
            adapters.set_dense(name, matrix)
    factors = adapters.gradient
    for task in history(rule.fate, commit.completed, commit.snapshot):
        factors = adapters.flatten(store.load(commit, factors_file(task)))
        adapters.parameters.copy_(factors)
        if rule.fate != "folded" or task > commit.snapshot:
            rule.retire(adapters)
        else:
            adapters.clear()  # the copy of the dense matrices holds this task already
    loaders = {name: anchor.load for name, anchor in learner.anchors} | {"allocation": rule.load}
    for name, load in loaders.items():
        path = mechanism_file(name, commit.completed)
        if path in commit.files:
            load(_resolved(factors, store.load(commit, path)))
    learner.completed = commit.completed


def _on_host(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()}


def _pointing_at(factors: Tensor, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Replace tensors of ``state`` that equal the task's factors by empty marked entries.

    factors: [P], stored in their own file. Two of the weight anchors also hold a copy of them.
    """
    written = {}
    for key, tensor in state.items():
        alike = (tensor.shape, tensor.dtype, tensor.device)
        if alike == (factors.shape, factors.dtype, factors.device) and tensor.equal(factors):
            written[key + _IS_FACTORS] = tensor.new_empty(0)
        else:
            written[key] = tensor
    return written


def _resolved(factors: Tensor, stored: dict[str, Tensor]) -> dict[str, Tensor]:
    """The inverse of :func:`_pointing_at`, on the device of ``factors``."""
    return {
        key.removesuffix(_IS_FACTORS): (
            factors.clone() if key.endswith(_IS_FACTORS) else tensor.to(factors.device)
        )
        for key, tensor in stored.items()
    }


def _mechanisms(learner: Learner) -> dict[str, dict[str, Tensor]]:
    states = {name: anchor.state() for name, anchor in learner.anchors}
    return {**states, "allocation": learner.allocation.state()}


def history(fate: str, completed: int, snapshot: int) -> range:
    """The tasks whose factors a reload needs, always including the last.

    fate: the allocation rule's ``fate``; snapshot: the task of the last copy of the dense
    matrices, 0 for none.
    """
    if fate == "kept":
        return range(completed, completed + 1)
    if fate == "folded":
        return range(min(snapshot + 1, completed), completed + 1)
    return range(1, completed + 1)


def _needed(learner: Learner, completed: int, snapshot: int, keep: Keep) -> range:
    if keep.factors:
        return range(1, completed + 1)
    return history(learner.allocation.fate, completed, snapshot)
