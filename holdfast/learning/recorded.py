"""A trajectory as its directory records it: its configuration, and the model after its tasks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from holdfast.backbone.load import load_backbone
from holdfast.backbone.model import Backbone
from holdfast.core.config import build
from holdfast.core.errors import HoldfastError
from holdfast.learning.config import RunConfig
from holdfast.learning.continuation import history, restore_learner
from holdfast.learning.learner import Learner
from holdfast.learning.state import Commit, Store, factors_file
from holdfast.results.description import CONFIG_FILE, Description


@dataclass(frozen=True)
class Recorded:
    """What a directory says of its trajectory; nothing of it is changed.

    config: its settings, with the precision in which it learned; identity: of its settings;
    fingerprint: of the unmodified backbone's weights; stream: its name; last: its last commit.
    """

    directory: Path
    config: RunConfig
    identity: str
    fingerprint: str
    stream: str
    last: Commit

    @classmethod
    def read(cls, directory: Path) -> Recorded:
        """Raise HoldfastError where there is no trajectory, or a damaged one."""
        found = Description.read(directory)
        config = build(RunConfig, found.config, source=str(directory / CONFIG_FILE))
        # "auto" may mean another precision on this machine than on the one that learned.
        precision = found.numbers.get("precision", config.backbone.precision)
        backbone = config.backbone.model_copy(update={"precision": precision})
        config = config.model_copy(update={"backbone": backbone})
        last = Store(directory).last_commit()
        fingerprint = found.backbone["fingerprint"]
        return cls(directory, config, found.identity, fingerprint, found.stream["name"], last)

    def boundary(self, after_task: int | None) -> Commit:
        """The commit after a task, as far as its model needs it; None is the last one.

        Raises HoldfastError when that task was not learned, or its model was not kept.
        """
        last, task = self.last, after_task
        if task is None or task == last.completed:
            return last
        if not 0 <= task <= last.completed:
            raise HoldfastError(
                f"{self.directory}: has learned {last.completed} tasks; --after-task {task} is not "
                f"among 0 to {last.completed}"
            )
        # Before the copy of the dense matrices, all factors are folded into the backbone's own.
        snapshot = last.snapshot if last.snapshot <= task else 0
        needed = history(self.config.allocation().fate, task, snapshot) if task else ()
        if not all(factors_file(number) in last.files for number in needed):
            raise HoldfastError(
                f"{self.directory}: the model after task {task} was not kept, as keep.factors was "
                f"off; give --after-task 0 or {last.completed}"
            )
        return replace(last, completed=task, tasks=last.tasks[:task], snapshot=snapshot)

    def backbone(self) -> Backbone:
        """The unmodified backbone; HoldfastError when it has other weights than it had then."""
        backbone = load_backbone(self.config.backbone)
        if backbone.fingerprint != self.fingerprint:
            raise HoldfastError(
                f"{self.directory}: was learned by a backbone with other weights than "
                f"{self.config.backbone.name} has here; give it the same ones"
            )
        return backbone

    def learner(self, commit: Commit) -> Learner:
        """The learner as a commit of :meth:`boundary` left it."""
        learner = Learner(self.config, self.backbone())
        with self.standing():
            restore_learner(Store(self.directory), learner, commit)
        return learner

    @contextmanager
    def standing(self) -> Iterator[None]:
        """Within the block files of a commit are read, which a run that goes on may remove.

        Raises HoldfastError that says so instead of one that calls the files damaged.
        """
        try:
            yield
        except HoldfastError:
            if Store(self.directory).last_commit() == self.last:
                raise
            raise HoldfastError(
                f"{self.directory}: has learned another task meanwhile; repeat the command"
            ) from None
