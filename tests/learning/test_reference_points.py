"""Joint training and stored replay: what they learn, and from what."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from holdfast.learning.learner import Learner, TaskData
from holdfast.learning.progress import Progress
from holdfast.learning.task import learn_task
from holdfast.streams import Item, Stream, Task
from tests.learning.test_balance import ITEMS, learner_of
from tests.tiny import flat, short_sequences

STREAM = Stream(
    tuple(
        Task(f"t{task}", tuple(Item(f"q {task} {item}", f"{item}") for item in range(ITEMS)))
        for task in range(4)
    ),
    "made up",
)


def test_joint_training_learns_all_tasks_as_if_they_had_come_at_once() -> None:
    joint = learner_of("joint_merge")
    lesson = joint.task_data(STREAM.tasks[:3])
    assert lesson.sequences == [
        sequence for task in STREAM.tasks[:3] for sequence in joint.encode(task)
    ]
    assert len(lesson.prompts) == 3 * ITEMS
    assert lesson.past_items == 0
    together = flat(learn_task(joint, lesson, Progress()).factors)
    naive = learner_of("merge")
    assert torch.equal(flat(learn_task(naive, lesson, Progress()).factors), together)


@pytest.mark.parametrize("capacity", [1, 5, 100])
def test_stored_items_are_of_earlier_tasks(capacity: int) -> None:
    """As many as are asked for, never the task's own; what leaves the store does not come back."""
    learner = learner_of("stored", stored={"items": capacity})
    before: list[list[int]] = []
    for count in range(1, len(STREAM.tasks) + 1):
        lesson = learner.task_data(STREAM.tasks[:count])
        past = [sequence for task in STREAM.tasks[: count - 1] for sequence in learner.encode(task)]
        newest = past[-ITEMS:]
        assert lesson.sequences == learner.encode(STREAM.tasks[count - 1])
        assert lesson.past_items == len(past)
        assert len(lesson.stored) == min(capacity, len(past))
        assert all(sequence in past for sequence in lesson.stored)
        assert all(sequence in before or sequence in newest for sequence in lesson.stored)
        before = lesson.stored
    assert learner.task_data(STREAM.tasks).stored == lesson.stored  # no draw is made twice


def test_every_item_has_the_same_chance_to_be_stored() -> None:
    """Half of 24 in each of 60 seeds: about 30 times each; 5 deviations are 20 more or less."""
    tasks = (*STREAM.tasks, Task("last", (Item("q", "a"),)))
    counts: dict[tuple[int, ...], int] = {}
    learner = learner_of("stored", stored={"items": 2 * ITEMS})
    for seed in range(60):
        learner.config = learner.config.model_copy(update={"seed": seed})
        for sequence in learner.task_data(tasks).stored:
            counts[tuple(sequence)] = counts.get(tuple(sequence), 0) + 1
    assert len(counts) == 4 * ITEMS
    assert min(counts.values()) > 10
    assert max(counts.values()) < 50


def test_stored_items_are_learned_as_they_are() -> None:
    """The cross-entropy of a set that is given, beside the task: what ``replay`` can do too."""
    first, second, written = (short_sequences(ITEMS, seed) for seed in (1, 2, 3))
    learned = {}
    for method, data in (("stored", {}), ("replay", {"loss": "cross_entropy"})):
        learner = learner_of(method, replay={"weight": 0.7, **data})
        learn_task(learner, TaskData(first), Progress())
        report = learn_with(learner, TaskData(second, past_items=ITEMS, stored=written))
        assert report.replay == written
        learned[method] = flat(report.factors)
    assert torch.equal(learned["stored"], learned["replay"])


def learn_with(learner: Learner, lesson: TaskData) -> Any:
    """Learn a task; an anchor that writes finds the stored sequences written."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("holdfast.learning.task.replay_set", lambda *_, **__: lesson.stored)
        return learn_task(learner, lesson, Progress())


def test_which_items_of_a_task_are_stored_says_nothing_of_another_task() -> None:
    learner = learner_of("stored", stored={"items": 2 * ITEMS})
    *earlier, last = STREAM.tasks
    stored = learner.task_data((*earlier, last)).stored
    places = [
        [place for place, sequence in enumerate(learner.encode(task)) if sequence in stored]
        for task in earlier
    ]
    assert sum(map(len, places)) == 2 * ITEMS
    assert places[0] != places[1] != places[2]
