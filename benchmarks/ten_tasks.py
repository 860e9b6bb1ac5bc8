"""A run of ten tasks end to end: a trajectory with its files, and the reference on its own."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from benchmarks.answering import one_by_one
from benchmarks.committing import save_reference
from benchmarks.floor import rates_of
from benchmarks.pairing import Measurement, Plan
from benchmarks.record import Report, Table, command, number
from benchmarks.twins import FULL, Twins, configuration, items, row_work
from holdfast.learning import boundary
from holdfast.learning.learner import Sequences
from holdfast.learning.trajectory import Trajectory
from holdfast.prediction import work as task_work
from holdfast.prediction.shape import Work
from holdfast.streams import Item, Stream
from reference.recall import accuracy
from reference.replay import paired_minibatches

TARGET = 5.0
_ANSWERS = 2


def measure(plan: Plan) -> Report:
    """Seconds of a whole run with a row after every task."""
    tasks, count, epochs, asked = (2, 8, 1, 2) if plan.smoke else (10, 16, 6, 2)
    samples = 8 if plan.smoke else 32
    sampling = {"samples": samples, "max_new_tokens": 32, "temperature": 1.0}
    config = configuration(FULL, optim={"epochs": epochs, "lr": 4e-3}, sampling=sampling)
    stream = items(tasks, count)
    engine, theirs, whole, by_task = [], [], [], []
    floors: list[float] = []
    for _ in range(1 if plan.smoke else plan.rounds):
        with tempfile.TemporaryDirectory() as folder:
            trajectory = Trajectory(config, Path(folder) / "engine", stream=stream)
            twins = Twins(config)
            plain = _Plain(twins, stream.tasks, asked, Path(folder) / "reference.pt")
            ours, drawn = [], []
            for task in range(1, tasks + 1):
                with _keeping(drawn):
                    start = time.perf_counter()
                    matrix = trajectory.advance(task)
                    ours.append(time.perf_counter() - start)
                plain.task(task)
            floors.append(_floor(twins, stream, [[], *drawn]))
        reference = [a + b for a, b in zip(plain.learning, plain.rows(tasks), strict=True)]
        engine.append(sum(ours))
        theirs.append(sum(reference))
        asked_in_all = count * tasks * (tasks + 1) // 2
        whole.append(sum(plain.learning) + asked_in_all * plain.whole_answer)
        by_task.append([b / a for a, b in zip(ours, reference, strict=True)])
    last = [matrix[tasks, task] for task in range(1, tasks + 1)]
    rows = [number(sum(plain.learning)), number(sum(plain.rows(tasks)))]
    timed = ", ".join(map(str, sorted(plain.timed)))
    floor = statistics.median(floors)
    note = (
        f"rows after tasks {timed} of the reference were timed on {asked} of {count} items of each "
        "task and scaled, the others interpolated; the engine also asks every task before "
        "learning it, the reference does not"
    )
    long = (
        "the recipe's worst and, by the paper's own template, usual case, for no end of sequence "
        f"is learned there: {_ANSWERS} answers of the reference were timed after the last task "
        f"and counted {asked_in_all} times; the engine's run is the same"
    )
    return Report(
        "ten_tasks",
        f"A run of {tasks} tasks, {FULL}",
        f"{count} items a task, {epochs} epochs, {samples} replay samples of at most 32 tokens, "
        "a row after every task, every boundary on disk. Each side draws its own samples. "
        f"Median ratio of a task: {statistics.median(by_task[-1]):.1f}x. The floor counts "
        "sampling, teacher, steps and rows, and neither boundaries nor disk.",
        [
            Measurement("answers of 256 tokens", "s", engine, whole, floor, TARGET, note=long),
            Measurement("answers that end", "s", engine, theirs, floor, TARGET, note=note),
        ],
        [
            Table("The reference's seconds", ["learning and saving", "rows"], [rows]),
            Table(
                "Recall at the end",
                ["engine, all tasks", "reference, asked items of all tasks"],
                [[f"{statistics.mean(last):.3f}", f"{plain.recall:.3f}"]],
            ),
        ],
    )


@contextmanager
def _keeping(drawn: list[Sequences]) -> Iterator[None]:
    """Within the block what is drawn as replay is added to ``drawn``."""
    draw = boundary.replay_set

    def kept(*given: Any, **named: Any) -> Sequences:
        drawn.append(draw(*given, **named))
        return drawn[-1]

    with patch.object(boundary, "replay_set", kept):
        yield


def _floor(twins: Twins, stream: Stream, replay: list[Sequences]) -> float:
    """Seconds of all that is counted; replay: of every task."""
    learner, questions, works = twins.learner, list[Item](), list[Work]()
    shape = twins.shape
    for task, drawn in zip(stream.tasks, replay, strict=True):
        questions += task.items
        works += task_work.learning(shape, twins.config, learner.encode(task), drawn)
        works += row_work(learner, shape, questions)
    return rates_of(shape).seconds(works)


class _Plain:
    """The reference's run, its boxed answers ending with their sequences.

    learning: seconds a task; timed: seconds a row, where it was timed; whole_answer: seconds of an
    answer of 256 tokens.
    """

    def __init__(self, twins: Twins, tasks: Any, asked: int, path: Path) -> None:
        self._twins, self._tasks, self._asked, self._path = twins, tasks, asked, path
        self.learning: list[float] = []
        self.timed: dict[int, float] = {}
        self.recall = 0.0
        self.whole_answer = 0.0

    def task(self, task: int) -> None:
        """Learn a task and save; time its row when it is one in three or the last."""
        twins = self._twins
        sequences = twins.learner.encode(self._tasks[task - 1])
        given = twins.given(sequences, [])
        if task > 1:
            given.replay_minibatches = self._replay
        start = time.perf_counter()
        result = twins.reference_learns(given)
        save_reference(twins.state, twins.settings, self._path)
        self.learning.append(time.perf_counter() - start)
        if task in (1, 1 + len(self._tasks) // 2, len(self._tasks)):
            chosen = [item for one in self._tasks[:task] for item in one.items[: self._asked]]
            questions = [(item.question, item.answer, item.aliases) for item in chosen]
            seed = twins.learner.backbone.seed_token
            start = time.perf_counter()
            self.recall = accuracy(result.model, twins.twin.tokenizer, questions, seed)
            scale = len(self._tasks[0].items) / self._asked
            self.timed[task] = scale * (time.perf_counter() - start)
            if task == len(self._tasks):
                start = time.perf_counter()
                one_by_one(
                    result.model,
                    twins.twin.tokenizer,
                    chosen[:_ANSWERS],
                    seed,
                    ending="never",
                    new_tokens=256,
                )
                self.whole_answer = (time.perf_counter() - start) / _ANSWERS

    def rows(self, tasks: int) -> list[float]:
        """Seconds of every row; between two that were timed, on the line through them."""
        found = dict(self.timed)
        for low, high in pairwise(sorted(self.timed)):
            slope = (self.timed[high] - self.timed[low]) / (high - low)
            found |= {one: self.timed[low] + slope * (one - low) for one in range(low, high)}
        return [found[one] for one in range(1, tasks + 1)]

    def _replay(self, teacher: Any) -> list[list[list[int]]]:
        optim = self._twins.config.optim
        steps = -(-len(self._tasks[0].items) // optim.batch_size)
        drawn = self._twins.reference_samples(teacher)
        source = torch.Generator().manual_seed(len(self.learning))
        return paired_minibatches(drawn, optim.batch_size, steps, optim.epochs, source)


if __name__ == "__main__":
    command(measure, rounds=1)
