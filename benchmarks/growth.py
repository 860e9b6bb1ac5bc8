"""What grows with the number of tasks: the time and the memory of training, a row, the state."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.children import ask, peak_resident
from benchmarks.committing import EngineDisk
from benchmarks.pairing import Plan
from benchmarks.record import Report, Table, command, number
from benchmarks.storage import formula
from benchmarks.twins import configuration, items
from holdfast.backbone.load import load_backbone
from holdfast.evaluation.recall import Recall
from holdfast.learning.boundary import learn_task
from holdfast.learning.learner import Learner, Lesson
from holdfast.learning.progress import Progress

RULES = {"shared": "vanilla", "merge": "merge", "osrm": "osrm", "olora": "olora"}
_KIB = 1 << 10
_REPEATS = 3


def measure(plan: Plan) -> Report:
    """A training step, memory and state at two horizons, and rows of several lengths."""
    early, late = (2, 4) if plan.smoke else (2, 60)
    training, state = [], []
    for rule, method in RULES.items():
        grown = (
            grow(method, early, late)
            if plan.smoke
            else ask("benchmarks.growth", "grow", method, early, late)
        )
        a, b = (1000 * grown["seconds"][which] for which in ("early", "late"))
        memory = [f"{grown['peak'][which]:,.0f}" for which in ("early", "late")]
        training.append([rule, number(a), number(b), f"{grown['ratio']:.2f}x", *memory])
        for task in (early, late):
            kept, by_formula = grown["kept"][str(task)], grown["formula"][str(task)]
            state.append([rule, str(task), number(kept), number(by_formula)])
    return Report(
        "growth",
        "Growth with the number of tasks",
        f"Each rule in a process of its own: t = {late} is reached by tasks of 2 items and one "
        "step, then tasks of one step on 8 items are timed in alternation at both horizons. Peak "
        "memory is read before the second learner exists. Kept on disk are the files that a "
        "continuation needs: under merge and osrm the factors since the last copy of the dense "
        "matrices instead of a copy after every task.",
        tables=[
            Table(
                f"Learning a task at t = {early} and t = {late}",
                ["rule", "ms early", "ms late", "late / early", "peak MiB early", "peak MiB late"],
                training,
            ),
            Table("State kept on disk", ["rule", "t", "KiB", "KiB by formula"], state),
            _rows((1, 2) if plan.smoke else (5, 10, 20, 40)),
        ],
    )


def grow(method: str, early: int, late: int) -> dict[str, Any]:
    """Learn up to ``late`` tasks; seconds of a task, peak MiB and KiB kept at both horizons."""
    repeats = 1 if early + 2 >= late else _REPEATS
    old = _Line(method, late + repeats, 2)
    with tempfile.TemporaryDirectory() as folder:
        disk = EngineDisk(Path(folder))
        kept, peak, by_formula = {}, {}, {}
        for which, horizon in (("early", early), ("late", late)):
            while old.learner.completed < horizon:
                disk.commit(old.learner, old.learn())
            kept[str(horizon)] = disk.kept / _KIB
            parts = formula(old.learner, old.learner.config, horizon)
            by_formula[str(horizon)] = sum(parts.values()) / _KIB
            peak[which] = peak_resident()
    young = _Line(method, early + repeats, 8)
    old.items = 8
    while young.learner.completed < early - 1:
        young.learn()
    times = [(young.seconds(), old.seconds()) for _ in range(repeats)]
    return {
        "seconds": {
            "early": statistics.median(a for a, _ in times),
            "late": statistics.median(b for _, b in times),
        },
        "ratio": statistics.median(b / a for a, b in times),
        "peak": peak,
        "kept": kept,
        "formula": by_formula,
    }


class _Line:
    """A learner and its tasks; items: how many of each task it learns."""

    def __init__(self, method: str, tasks: int, count: int) -> None:
        self.learner = Learner(configuration(method, optim={"epochs": 1}), load_backbone())
        self.items = count
        self._tasks = items(tasks, 8).tasks

    def learn(self) -> Any:
        task = self._tasks[self.learner.completed]
        sequences = self.learner.encode(task)[: self.items]
        return learn_task(self.learner, Lesson(sequences), Progress())

    def seconds(self) -> float:
        start = time.perf_counter()
        self.learn()
        return time.perf_counter() - start


def _rows(lengths: tuple[int, ...]) -> Table:
    """A row over more and more tasks of one model, tokenised beforehand."""
    learner = Learner(configuration("merge", optim={"epochs": 1}), load_backbone())
    tasks = items(lengths[-1], 8).tasks
    learn_task(learner, Lesson(learner.encode(tasks[0])), Progress())
    recall = Recall(learner.backbone, learner.template, exact_case=True)
    recall.row(tasks)
    taken: dict[int, list[float]] = {length: [] for length in lengths}
    for _ in range(3):
        for length in lengths:
            start = time.perf_counter()
            recall.row(tasks[:length])
            taken[length].append(1000 * (time.perf_counter() - start))
    rows = [
        [str(length), number(spent), number(spent / length)]
        for length, times in taken.items()
        for spent in [statistics.median(times)]
    ]
    return Table("A row, tasks of 8 items", ["tasks", "ms", "ms a task"], rows)


if __name__ == "__main__":
    command(measure, rounds=1)
