"""One task end to end: sampling, training, boundary, row and commit."""

from __future__ import annotations

import itertools
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks.committing import EngineDisk, save_reference
from benchmarks.floor import rates_of
from benchmarks.pairing import Measurement, Plan
from benchmarks.record import Report, command
from benchmarks.twins import FULL, Twins, configuration, items, row_work
from holdfast.evaluation.recall import Recall
from holdfast.learning.learner import Sequences
from holdfast.prediction import work as task_work
from holdfast.streams import Item, Task
from reference.recall import accuracy

PHASES = ("whole", "learning", "row", "commit")
METHODS = ("vanilla", FULL)


def measure(plan: Plan) -> Report:
    """Seconds of a whole task and its row, by phase."""
    rounds = 1 if plan.smoke else plan.rounds
    count, epochs, asked = (8, 1, 2) if plan.smoke else (24, 5, 6)
    samples, length = (8, 12) if plan.smoke else (64, 48)
    measured = []
    for method in METHODS if not plan.smoke else METHODS[-1:]:
        sampling = {"samples": samples, "max_new_tokens": length, "temperature": 1.0}
        config = configuration(method, optim={"epochs": epochs}, sampling=sampling)
        with tempfile.TemporaryDirectory() as folder:
            course = _Course(Twins(config), items(rounds + 1, count).tasks, asked, Path(folder))
            taken = [course.task() for _ in course.tasks][1:]
        for phase in PHASES:
            ours, theirs = ([times[phase] for times in side] for side in zip(*taken, strict=True))
            floor = statistics.median(course.floors[phase]) if phase in course.floors else None
            note = f"the reference's row is {asked} of {count} items of each task, scaled"
            if phase != "row":
                note = ""
            name = f"{method}, {phase}"
            measured.append(Measurement(name, "s", ours, theirs, floor, note=note))
    return Report(
        "one_task",
        "One task end to end",
        f"{count} items, {epochs} epochs, {samples} replay samples of at most {length} tokens, "
        "from the second task on. Learning is sampling, teacher, training and boundary; the "
        "reference's row is generated one item at a time, up to 256 tokens or the end of "
        "sequence, from a subset of the items, scaled; its commit is `torch.save`. The engine "
        "writes its files while the row is asked for; its commit is what is left to do then. The "
        "floor counts sampling, teacher, steps and row, and neither boundary nor disk.",
        measured,
    )


class _Course:
    """Tasks learned in alternation; the first, which has no past, warms both sides up.

    floors: seconds of the phases whose work is counted, of every task but the first.
    """

    def __init__(self, twins: Twins, tasks: tuple[Task, ...], asked: int, folder: Path) -> None:
        self.tasks = tasks
        self.floors: dict[str, list[float]] = {"whole": [], "learning": [], "row": []}
        self._shape = twins.shape
        self._twins = twins
        self._asked = asked
        self._disk = EngineDisk(folder / "engine")
        self._path = folder / "reference.pt"
        learner = twins.learner
        self._recall = Recall(learner.backbone, learner.template, exact_case=True)

    def task(self) -> tuple[dict[str, float], dict[str, float]]:
        """Seconds of the next task by phase: the engine's, the reference's."""
        number = self._twins.learner.completed + 1
        sequences = self._twins.learner.encode(self.tasks[number - 1])
        marks = [time.perf_counter()]
        report = self._twins.engine_learns(sequences)
        marks.append(time.perf_counter())
        with self._disk.beside(self._twins.learner, report):
            self._recall.row(self.tasks[:number])
            marks.append(time.perf_counter())
        marks.append(time.perf_counter())
        ours = _phases(marks, 1.0)
        if number > 1:
            self._count(sequences, report.replay, number)

        given = self._twins.given(sequences, report.replay)
        marks = [time.perf_counter()]
        if given.replay_minibatches is not None:
            # Training takes the engine's samples; drawing its own is part of the task's time.
            self._twins.reference_samples(self._twins.state.backbone)
        result = self._twins.reference_learns(given)
        marks.append(time.perf_counter())
        seed = self._twins.learner.backbone.seed_token
        share = accuracy(result.model, self._twins.twin.tokenizer, self._questions(number), seed)
        assert 0 <= share <= 1
        marks.append(time.perf_counter())
        save_reference(self._twins.state, self._twins.settings, self._path)
        marks.append(time.perf_counter())
        return ours, _phases(marks, len(self.tasks[0].items) / self._asked)

    def _count(self, sequences: Sequences, replay: Sequences, number: int) -> None:
        learner, shape = self._twins.learner, self._shape
        questions = [item for task in self.tasks[:number] for item in task.items]
        seconds = rates_of(shape).seconds
        learning = seconds(task_work.learning(shape, self._twins.config, sequences, replay))
        row = seconds(row_work(learner, shape, questions))
        for phase, spent in {"whole": learning + row, "learning": learning, "row": row}.items():
            self.floors[phase].append(spent)

    def _questions(self, number: int) -> list[tuple[str, str, tuple[str, ...]]]:
        chosen: list[Item] = [
            item for task in self.tasks[:number] for item in task.items[: self._asked]
        ]
        return [(item.question, item.answer, item.aliases) for item in chosen]


def _phases(marks: list[float], row_scale: float) -> dict[str, float]:
    spent = [end - start for start, end in itertools.pairwise(marks)]
    spent[1] *= row_scale
    return dict(zip(PHASES, [sum(spent), *spent], strict=True))


if __name__ == "__main__":
    command(measure, rounds=3)
