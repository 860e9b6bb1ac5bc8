"""optim.min_steps: a small task has its epochs repeated."""

from __future__ import annotations

import json

import pytest

from holdfast import Trajectory
from holdfast.learning.config import Optimisation
from holdfast.learning.progress import Progress
from holdfast.streams import Item, Stream, Task
from tests.memory.memories import config


class Counting(Progress):
    """The last step of every task, and what it was said to be of."""

    def __init__(self) -> None:
        self.steps: dict[int, tuple[int, int]] = {}

    def step(self, phase, task, done, total) -> None:
        self.steps[task] = (done, total)


def stream_of(*sizes):
    tasks = [
        Task(f"t{n}", tuple(Item(f"q{n} {i}", f"a{i}") for i in range(size)))
        for n, size in enumerate(sizes)
    ]
    return Stream(tuple(tasks), "sizes")


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(("least", "steps"), [(0, [2, 4, 10]), (7, [7, 8, 10]), (11, [11, 12, 15])])
def test_epochs_repeat_until_there_are_enough_steps(least, steps, backbone_directory, tmp_path):
    """Epochs of 1, 2 and 5 steps, two of them, or as many whole ones as it takes."""
    optim = {"epochs": 2, "batch_size": 2, "min_steps": least}
    settings = config(backbone_directory, optim=optim)
    counting = Counting()
    Trajectory(settings, tmp_path, stream=stream_of(2, 3, 9)).advance(progress=counting)
    assert [counting.steps[task] for task in (1, 2, 3)] == [(count, count) for count in steps]
    log = (tmp_path / "log.jsonl").read_text().splitlines()
    losses = [json.loads(line)["losses"] for line in log]
    epochs = [count // in_epoch for count, in_epoch in zip(steps, (1, 2, 5), strict=True)]
    assert [len(each) for each in losses] == epochs


def test_accumulation_makes_fewer_steps():
    settings = Optimisation(epochs=2, batch_size=2, accumulation=3, min_steps=5)
    assert settings.steps_in_epoch(9) == 2
    assert settings.epochs_of(9) == 3
