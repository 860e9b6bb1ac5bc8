"""The model that is to be measured: a trajectory's, as it was after some task, or a backbone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from holdfast.backbone.load import Backbone, load_backbone
from holdfast.core.config import build
from holdfast.core.errors import HoldfastError
from holdfast.core.files import read_json
from holdfast.learning.config import RunConfig
from holdfast.learning.continuation import restore_learner
from holdfast.learning.learner import Learner
from holdfast.learning.state import Commit, Store, factors_file
from holdfast.results.capability import boundary, model_after


@dataclass(frozen=True)
class Model:
    """What is measured. label: how it is called; directory: where its results go.

    fingerprint: of its weights; after_task: tasks that it has learned; load: gives the model,
    ready to be asked.
    """

    label: str
    directory: Path
    fingerprint: str
    after_task: int
    load: Callable[[], Backbone]


def plain_model(name: str, directory: Path) -> Model:
    """A backbone by its name. HoldfastError when it cannot be loaded."""
    backbone = load_backbone(Backbone.Config(name=name))
    return Model(name, directory, backbone.fingerprint, 0, lambda: backbone)


def trajectory_model(path: Path, after_task: int | None, directory: Path | None = None) -> Model:
    """A trajectory's model after a task; None is the last one, 0 the unmodified backbone.

    directory: where the results go, None for beside the trajectory.
    Raises HoldfastError when that boundary is not there, or the trajectory is damaged.
    """
    recorded = read_json(path / "config.json")
    try:
        config = build(RunConfig, recorded["config"], source=str(path / "config.json"))
        identity = str(recorded["identity"])
        fingerprint = str(recorded["backbone"]["fingerprint"])
    except (KeyError, TypeError):
        raise HoldfastError(
            f"{path}: its config.json is no trajectory's; restore the file"
        ) from None
    store = Store(path)
    last = store.last_commit()
    task = last.completed if after_task is None else after_task
    commit = _boundary_of(path, last, task)
    model = model_after(identity, commit.tasks) if task else fingerprint

    def load() -> Backbone:
        backbone = load_backbone(config.backbone)
        if backbone.fingerprint != fingerprint:
            raise HoldfastError(
                f"{path}: was learned by a backbone with other weights than "
                f"{config.backbone.name} has here; give it the same ones"
            )
        if task == 0:
            return backbone
        learner = Learner(config, backbone)
        restore_learner(store, learner, commit)
        learner.adapters.evaluating()
        return learner.backbone

    return Model(str(path), directory or boundary(path, task), model, task, load)


def _boundary_of(path: Path, last: Commit, task: int) -> Commit:
    """The commit of an earlier boundary, as far as it is needed to ask the model of then."""
    if not 0 <= task <= last.completed:
        raise HoldfastError(
            f"{path}: has learned {last.completed} tasks; --after-task {task} is not among "
            f"0 to {last.completed}"
        )
    if task == last.completed:
        return last
    kept = [factors_file(number) in last.files for number in range(1, task + 1)]
    if not all(kept):
        raise HoldfastError(
            f"{path}: the model after task {task} was not kept, as keep.factors was off; give "
            f"--after-task 0 or {last.completed}"
        )
    # Before the copy of the dense matrices, all factors are folded into the backbone's own.
    snapshot = last.snapshot if last.snapshot <= task else 0
    return replace(last, completed=task, tasks=last.tasks[:task], snapshot=snapshot)
