"""The model to measure: a trajectory's model after a given task, or a backbone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from holdfast.backbone.load import load_backbone
from holdfast.backbone.model import Backbone
from holdfast.core.own import refuse_links
from holdfast.learning.recorded import Recorded
from holdfast.results.capability import boundary, model_after


@dataclass(frozen=True)
class Model:
    """A model to measure. label: its name; directory: where its results go.

    fingerprint: of its weights; after_task: how many tasks it has learned; load: returns the
    model, ready for evaluation.
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

    directory: where the results go, None for the trajectory's own.
    Raises HoldfastError when that boundary is missing, or the trajectory is damaged.
    """
    recorded = Recorded.read(path)
    commit = recorded.boundary(after_task)
    task = commit.completed
    model = model_after(recorded.identity, commit.tasks) if task else recorded.fingerprint

    def load() -> Backbone:
        return recorded.learner(commit).backbone if task else recorded.backbone()

    if directory is None:
        directory = boundary(path, task)
        refuse_links(path, ("capability", f"capability/{directory.name}"))
    return Model(str(path), directory, model, task, load)
