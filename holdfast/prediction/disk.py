"""What a trajectory's directory holds after some tasks, and what each commit writes, in bytes.

The state of a folded model is the factors since the last copy of the dense matrices. The storage
formulas of the paper (:mod:`holdfast.analysis.state_size`) count the folded matrices instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from holdfast.backbone.curvature import curvature_numbers
from holdfast.learning.config import RunConfig
from holdfast.learning.continuation import history
from holdfast.prediction.lengths import Lengths
from holdfast.prediction.method import Mechanisms
from holdfast.prediction.shape import Shape

_HEADER = 115  # bytes of a tensor's name, type, shape and place in a file
_CELL = 14  # bytes of a line of the matrix, which stands in two files
_TOKEN = 10  # bytes of a token of a sample: its number, and its text
_LOG_TERM = 40  # bytes of a term's mean in one epoch


@dataclass(frozen=True)
class Disk:
    """The files of one configuration on a stream."""

    shape: Shape
    config: RunConfig
    lengths: Lengths

    def state(self, task: int) -> dict[str, int]:
        """The files that the commit after a task names, by kind."""
        copied = self._copied(task)
        fate = self._uses.fate
        kept = range(task) if self.config.keep.factors else history(fate, task, copied)
        return {
            "factors": len(kept) * self._factors,
            "dense matrices": self._dense if copied else 0,
            "anchors and rule": self._mechanisms(task),
        }

    def written(self, task: int) -> int:
        """The state's files that the commit after a task adds."""
        copies = self._uses.fate == "folded" and task % self.config.keep.snapshot_every == 0
        return self._factors + self._mechanisms(task) + (self._dense if copies else 0)

    def end(self) -> dict[str, int]:
        """Everything in the directory after the last task, by kind."""
        tasks = self.lengths.tasks
        cells = tasks + self._rows()
        epochs = self.config.optim.epochs_of(self.lengths.items)
        found = {
            **self.state(tasks),
            "matrix and log": 2 * _CELL * cells
            + tasks * (600 + _LOG_TERM * epochs * (1 + len(self._uses.anchors))),
        }
        if self.config.sampling.keep and self._uses.writes:
            a_file = self.config.sampling.samples * (30 + _TOKEN * (self.lengths.sample - 1))
            found["samples"] = (tasks - 1) * a_file
        if self.config.evaluation.items:
            found["verdicts by item"] = self._rows() * (self.lengths.items + 10)
        return {kind: size for kind, size in found.items() if size}

    def most(self) -> int:
        """The most that stands there at once: old files are removed after new ones are written."""
        tasks = range(1, self.lengths.tasks + 1)
        others = sum(self.end().values()) - sum(self.state(tasks[-1]).values())
        return others + max(
            sum(self.state(task - 1).values()) * (task > 1) + self.written(task) for task in tasks
        )

    def _rows(self) -> int:
        return tasks_asked(self.config, self.lengths.tasks)

    def _copied(self, task: int) -> int:
        """The task after which the dense matrices were last copied, 0 for none."""
        return task - task % self.config.keep.snapshot_every if self._uses.fate == "folded" else 0

    @cached_property
    def _uses(self) -> Mechanisms:
        return Mechanisms.of(self.config)

    @property
    def _maps(self) -> int:
        return self.shape.layers * len(self.shape.adapted)

    @property
    def _w(self) -> int:
        return max(4, self.shape.scalar)

    @property
    def _vector(self) -> int:
        """One number for every trainable scalar."""
        return self._w * (self.shape.trainable + self._uses.seed_row * self.shape.width)

    @property
    def _factors(self) -> int:
        return self._vector + 2 * self._maps * _HEADER

    @property
    def _dense(self) -> int:
        merges_wide = self.config.lora.merge_precision == "float32"
        scalar = max(4, self.shape.scalar) if merges_wide else self.shape.scalar
        return scalar * self.shape.adapted_dense + self._maps * _HEADER

    def _mechanisms(self, task: int) -> int:
        """Anchors' importances, S and G, mean inputs; references are the factors' own file."""
        uses = self._uses
        size = uses.weight_anchors * (self._vector + 3 * _HEADER)
        if uses.curvature_kept:
            numbers = curvature_numbers(self.shape.readers(), self.config.curvature)
            a_copy = self._w * self.shape.layers * numbers + 2 * self._maps * _HEADER
            size += uses.curvature_kept * a_copy
        if uses.rule == "osrm":
            size += self._w * task * self.shape.inputs + self._maps * _HEADER
        return size


def tasks_asked(config: RunConfig, tasks: int) -> int:
    """How many tasks are asked in all rows together, without those before they are learned."""
    rows = config.evaluation.rows
    if rows == "horizon":
        return tasks
    every = 1 if rows == "every" else int(rows)
    whole: set[int] = {*range(every, tasks + 1, every), tasks}
    return sum(whole) + tasks - len(whole)
