"""Read a trajectory's directory: its configuration, and the model after any kept task."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from holdfast.core.config import build
from holdfast.core.errors import HoldfastError
from holdfast.learning.config import RunConfig
from holdfast.learning.learner import Learner
from holdfast.learning.state import Commit, Store, factors_file, history, restore_learner
from holdfast.learning.stream import stream_of
from holdfast.model.backbone import Backbone
from holdfast.model.chat import texts_sha256
from holdfast.model.load import load_backbone
from holdfast.results.record import CONFIG_FILE, Description
from holdfast.streams import Task


@dataclass(frozen=True)
class Recorded:
    """A trajectory as its directory records it; read only.

    config: its settings, with the precision it was learned in; identity: the sha256 of those that
    change results; fingerprint: of the unmodified backbone; stream: its name; last: its last
    commit; chat_template: the sha256 of the template's texts, None in the paper's form.
    """

    directory: Path
    config: RunConfig
    identity: str
    fingerprint: str
    stream: str
    last: Commit
    chat_template: str | None = None

    @classmethod
    def read(cls, directory: Path) -> Recorded:
        """Read a directory; HoldfastError when it has no trajectory, or a damaged one."""
        description = Description.read(directory)
        numbers = description.numbers
        config = build(RunConfig, description.config, source=str(directory / CONFIG_FILE))
        # "auto" may mean another precision on this machine than on the one that learned.
        precision = numbers.get("precision", config.backbone.precision)
        backbone = config.backbone.model_copy(update={"precision": precision})
        return cls(
            directory,
            config.model_copy(update={"backbone": backbone}),
            description.identity,
            description.backbone["fingerprint"],
            description.stream["name"],
            Store(directory).last_commit(),
            numbers.get("chat_template"),
        )

    def boundary(self, after_task: int | None) -> Commit:
        """The commit from which to restore the model after a task; None: the last commit.

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
        snapshot = self._snapshot_before(task)
        if not self._is_kept(task):
            folded = self.config.allocation().after_task == "merge"
            most = self.config.keep.snapshot_every
            every = f", or a keep.snapshot_every above {most}," if folded else ""
            raise HoldfastError(
                f"{self.directory}: the model after task {task} was not kept, as keep.factors was "
                f"off; give --after-task {_listed(self.kept)}; keep.factors=true{every} keeps more "
                "of what comes"
            )
        return replace(last, completed=task, tasks=last.tasks[:task], snapshot=snapshot)

    @property
    def kept(self) -> list[int]:
        """The learned tasks after which the model can be restored."""
        last = self.last.completed
        return [task for task in range(1, last) if self._is_kept(task)] + [last]

    def _is_kept(self, task: int) -> bool:
        if task == 0:
            return True
        needed = history(self.config.allocation().after_task, task, self._snapshot_before(task))
        return all(factors_file(number) in self.last.files for number in needed)

    def _snapshot_before(self, task: int) -> int:
        # A snapshot taken after ``task`` is of no use: fold all factors into the backbone instead.
        return self.last.snapshot if self.last.snapshot <= task else 0

    def taught(self, commit: Commit) -> tuple[Task, ...]:
        """The tasks learned until a commit, in order.

        Raises HoldfastError if they cannot be read, or have changed since they were learned.
        """
        tasks = stream_of(self.config).tasks[: commit.completed]
        if [task.fingerprint for task in tasks] != commit.tasks:
            name = self.config.stream.name
            raise HoldfastError(f"stream {name}: is not as it was learned; restore it")
        return tasks

    def backbone(self) -> Backbone:
        """Load the unmodified backbone; HoldfastError when its weights have changed since."""
        backbone = load_backbone(self.config.backbone)
        if backbone.fingerprint != self.fingerprint:
            raise HoldfastError(
                f"{self.directory}: was learned by a backbone with other weights than "
                f"{self.config.backbone.name} has here; give it the same ones"
            )
        template, tokenizer = self.config.template, backbone.tokenizer
        if template.form == "chat" and texts_sha256(template, tokenizer) != self.chat_template:
            raise HoldfastError(
                f"{self.directory}: was learned in another chat template than "
                f"{self.config.backbone.name} has here; give it the same one"
            )
        return backbone

    def learner(self, commit: Commit) -> Learner:
        """Restore the learner from a commit that :meth:`boundary` returned."""
        learner = Learner(self.config, self.backbone())
        with self.unchanged():
            restore_learner(Store(self.directory), learner, commit)
        return learner

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Guard a block that reads a commit's files, which a run still in progress may remove.

        If the run has committed since, a HoldfastError of the block becomes one that says so.
        """
        try:
            yield
        except HoldfastError:
            if Store(self.directory).last_commit() == self.last:
                raise
            raise HoldfastError(
                f"{self.directory}: has learned another task meanwhile; repeat the command"
            ) from None


def _listed(numbers: list[int]) -> str:
    """Ascending numbers in words, runs of three or more as ``a to b``: ``0, 3 to 7 or 9``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    words: list[str] = []
    for run in runs:
        words += [f"{run[0]} to {run[-1]}"] if len(run) > 2 else map(str, run)
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))
