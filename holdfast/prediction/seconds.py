"""The time of a task by phase, and of a whole stream: counted work at a device's rates.

The count leaves out elementwise work, of which a token has d times as much where its products are
d squared, and Python and launches, which grow with the number of passes. So a phase takes its count
times ``1 + c / d``, and a moment for every layer of every pass. Both constants were measured on one
processor, which makes time rougher than memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from holdfast.learning.config import RunConfig
from holdfast.prediction import work
from holdfast.prediction.disk import tasks_asked
from holdfast.prediction.lengths import Lengths
from holdfast.prediction.method import Mechanisms
from holdfast.prediction.rates import Rates
from holdfast.prediction.shape import Shape, Work

# Measured on two cores (docs/how-to/will-it-fit.md): c, and a layer's moment in seconds, for a
# position that is sampled with its draw.
ELEMENTWISE = 320
A_LAYER = 0.5e-3
A_LAYER_SAMPLED = 1.5e-3


@dataclass(frozen=True)
class Times:
    """Seconds of one configuration. rates: of the device that it runs on.

    Answers are taken to be decided by the verifying pass, and every sample to reach its limit.
    """

    shape: Shape
    config: RunConfig
    lengths: Lengths
    rates: Rates

    def of_task(self, task: int) -> dict[str, float]:
        """By phase; the first task has no past. The row asks all tasks so far."""
        asked = {"evaluation": self._row(task + (self.config.evaluation.rows != "horizon"))}
        return self._seconds(self._learning(task) | asked)

    def whole(self) -> float:
        """Of the whole stream with all its rows."""
        tasks = self.lengths.tasks
        first = sum(self._seconds(self._learning(1)).values())
        if self._uses.joint:
            later = sum(sum(self._seconds(self._learning(t)).values()) for t in range(2, tasks + 1))
        else:
            later = (tasks - 1) * sum(self._seconds(self._learning(2)).values())
        unseen = tasks if self.config.evaluation.rows != "horizon" else 0
        asked = self._row(tasks_asked(self.config, tasks) + unseen)
        return first + later + sum(self._seconds({"evaluation": asked}).values())

    def counted(self, task: int) -> dict[str, Work]:
        """The operations and bytes of a task by phase."""
        phases = self._learning(task) | {"evaluation": self._row(task)}
        return {name: sum(works, Work()) for name, works in phases.items()}

    @property
    def beyond_the_count(self) -> float:
        """Over what is counted: 1 + c / d."""
        return 1 + ELEMENTWISE / self.shape.width

    def _seconds(self, phases: dict[str, list[Work]]) -> dict[str, float]:
        return {
            name: self.beyond_the_count * self.rates.seconds(works)
            + (A_LAYER_SAMPLED if name == "sampling" else A_LAYER) * self.shape.layers * len(works)
            for name, works in phases.items()
        }

    def _learning(self, task: int) -> dict[str, list[Work]]:
        shape, config, uses = self.shape, self.config, self._uses
        past = task > 1
        kept = past and uses.rule == "shared"  # else the branch was added to the matrices
        again = config.backbone.checkpointing
        items = self.lengths.items * (task if uses.joint else 1)
        own = [range(round(self.lengths.item))] * items
        sampled = [range(self.lengths.sample)] * config.sampling.samples
        general = [range(self.lengths.sample)] * config.sampling.general
        replay = (
            (own[:1] * uses.stored if uses.stored else sampled) if uses.replays and past else []
        )
        found: dict[str, list[Work]] = {}
        first = uses.general_first and not past
        drawn = [
            *(sampled if uses.writes and past else []),
            *(general if uses.curvature or first else []),
        ]
        if drawn:
            found["sampling"] = work.sampling(shape, [one[1:] for one in drawn], branch=kept)
        if drawn and (uses.curvature or first):
            found["curvature"] = work.fisher_pass(shape, drawn, branch=kept, again=again)
        asked = [*replay, *(own if uses.distils and past else [])]
        if asked:
            found["teacher"] = work.teacher(shape, asked, branch=kept)
        anchors = (
            uses.anchors if past else tuple(n for n in uses.anchors if n not in ("sd", "kfac"))
        )
        found["training"] = work.steps(shape, config, own, replay, anchors)
        found["boundary"] = work.boundary(shape, config, own)
        if uses.own_curvature:
            found["boundary"] += work.fisher_pass(shape, own, branch=True, again=again)
        return found

    def _row(self, tasks: int) -> list[Work]:
        """The passes over the questions of so many tasks, in batches."""
        lengths = self.lengths
        rows = max(1, self.config.evaluation.tokens_per_batch // lengths.longest)
        items = tasks * lengths.items
        works = []
        while items > 0:
            batch = min(rows, items)
            works += work.row(
                self.shape,
                [round(lengths.item)] * batch,
                round(batch * lengths.answer),
                branch=self._uses.rule == "shared",
            )
            items -= batch
        return works

    @cached_property
    def _uses(self) -> Mechanisms:
        return Mechanisms.of(self.config)
