"""What the curvature anchor believes that a task changes, and what it changes.

    python -m benchmarks.curvature_error runs/lasting

The trajectory's next task is learned in memory; nothing is written. On answers of earlier tasks it
prints tau^2 KL of the tempered distributions before and after, per token, and what comes of it when
one neglects more and more: all but second order, what maps do together, what S and G leave out,
what the model has become since S and G were taken, all but a few of their eigenpairs.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.record import Report, Table, markdown, number
from holdfast.anchors.base import TaskStart
from holdfast.anchors.kfac import KroneckerFisher
from holdfast.backbone.curvature import Curvature, CurvatureConfig, curvature_of
from holdfast.core.errors import HoldfastError
from holdfast.learning.boundary import learn_task
from holdfast.learning.learner import Learner, Lesson
from holdfast.learning.progress import Progress
from holdfast.learning.recorded import Recorded
from holdfast.learning.teacher import states_of
from holdfast.learning.trajectory import Trajectory
from holdfast.streams import Task, load_stream

_PROBES = 512
_SMALL = 0.1  # of the change, where only second order is left
_EIGENPAIRS = (128, 64, 16, 0)

Matrices = Mapping[str, Tensor]


class Change:
    """What learning the next task does to the dense matrices, and to earlier answers.

    learner: as it was before; step: dW by map; held: S and G as the anchor held them.
    """

    def __init__(self, directory: Path) -> None:
        recorded = Recorded.read(directory)
        done = recorded.last.completed
        source = recorded.config.stream.model_copy(update={"tasks": done + 1})
        config = recorded.config.model_copy(update={"stream": source})
        stream = load_stream(source)
        self.learner, student = (
            Trajectory(config, directory, stream=stream).learner() for _ in range(2)
        )
        self._before = _dense(student)
        lesson = student.lesson(stream.tasks)
        learn_task(student, lesson, Progress())
        self.step = {name: one - self._before[name] for name, one in _dense(student).items()}
        self.held = _held(self.learner, lesson)
        self.probes = _probes(self.learner, stream.tasks[:done])
        self._answers = _is_answer(self.probes)
        self._temperature = config.curvature.temperature
        self._logits = self._ask()

    def divergence(self, part: float = 1.0, only: str | None = None) -> float:
        """tau^2 KL per token when ``part`` of the change is made, of one map or of all."""
        self._set({n: part * d for n, d in self.step.items() if only in (None, n)})
        tau = self._temperature
        p, q = ((one / tau).log_softmax(dim=1) for one in (self._logits, self._ask()))
        self._set({})
        found = tau**2 * (p.exp() * (p - q)).sum(dim=1)[self._answers]
        return float(found.sum()) / len(self._answers)

    def form(self, curvature: Curvature) -> float:
        """1/2 sum over maps of tr(G dW S dW^T)."""
        total = 0.0
        for name, change in self.step.items():
            known = curvature[name]
            curved = known.inputs.times(known.outputs.times(change.t()).t())
            total += 0.5 * float((curved * change).sum())
        return total

    def fresh(self, config: CurvatureConfig) -> Curvature:
        """S and G of the probes, of the model as it is."""
        learner = self.learner
        draw = (learner.config.seed, "probes", learner.completed)
        sequences, prompts = self.probes.sequences, self.probes.prompts
        return curvature_of(learner.backbone, sequences, config, draw, prompts)

    @torch.no_grad()
    def _ask(self) -> Tensor:
        backbone, sequences = self.learner.backbone, self.probes.sequences
        states = states_of(backbone, sequences).rows(list(range(len(sequences))))
        return backbone.logits(states)

    def _set(self, change: Matrices) -> None:
        for name, dense in self._before.items():
            self.learner.adapters.set_dense(name, dense + change.get(name, 0.0))


def measure(directory: Path) -> Report:
    """One row for each thing that is neglected."""
    change = Change(directory)
    settings = change.learner.config.curvature
    whole = settings.model_copy(update={"exact_up_to": 1 << 30})
    rows = [("the change itself", change.divergence())]
    rows.append(("to second order", change.divergence(_SMALL) / _SMALL**2))
    alone = sum(change.divergence(_SMALL, name) for name in change.step) / _SMALL**2
    rows.append(("each map alone", alone))
    exact = change.form(change.fresh(whole))
    rows.append(("S and G, taken now on the same answers", exact))
    rows.append(("S and G as they were held", change.form(change.held)))
    for kept in _EIGENPAIRS:
        few = settings.model_copy(update={"exact_up_to": 0, "eigenpairs": kept})
        rows.append((f"taken now, {kept} eigenpairs", change.form(change.fresh(few))))
    first = rows[0][1]
    table = Table(
        "Of the change by one task",
        ["what", "tau^2 KL per token", "share"],
        [[name, number(value), f"{value / first:.2f}"] for name, value in rows],
    )
    return Report(
        "curvature_error",
        "What the curvature anchor sees",
        f"Task {change.learner.completed + 1}, on the answers of {len(change.probes.sequences)} "
        "items of earlier tasks; a mean over all their tokens, those of questions at 0.",
        tables=[table],
    )


def _held(learner: Learner, lesson: Lesson) -> Curvature:
    """What the anchor holds while a lesson is learned."""
    (anchor,) = (one for _, one in learner.anchors if isinstance(one, KroneckerFisher))
    start = TaskStart(
        learner.completed + 1,
        learner.adapters.parameters.detach(),
        items=len(lesson.sequences),
        past_items=lesson.past_items,
        general=learner.config.sampling.general,
    )
    anchor.begin(start)
    if anchor.held is None:
        raise HoldfastError("nothing is held here; give a trajectory with kfac.source=own")
    return anchor.held


def _dense(learner: Learner) -> dict[str, Tensor]:
    return {name: learner.adapters.dense(name).clone() for name in learner.adapters.layers}


def _probes(learner: Learner, tasks: tuple[Task, ...]) -> Lesson:
    items = [item for task in tasks for item in task.items]
    chosen = random.Random(0).sample(items, min(_PROBES, len(items)))
    return learner.lesson([Task("probes", tuple(chosen))])


def _is_answer(probes: Lesson) -> Tensor:
    pairs = zip(probes.sequences, probes.prompts, strict=True)
    return torch.cat([torch.arange(1, len(one)) >= prompt for one, prompt in pairs])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("directory", type=Path, help="a trajectory of kfac_merge")
    print(markdown([measure(parser.parse_args().directory)]))


if __name__ == "__main__":
    main()
