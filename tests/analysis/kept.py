"""Runs that kept verdicts by item and samples, written without a model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from holdfast.results.items import write_row
from holdfast.streams import Template, symbol_qa
from tests.analysis.synthetic import counts, write_trajectory

SETTINGS = {"template.append_eos": True}
ITEMS = 8


def verdicts(method: str, seed: int, tasks: int, items: int = ITEMS) -> NDArray[np.bool_]:
    """Whether an item is recalled, [row, task, item] from 0; the first items of a task go first."""
    correct = counts(method, seed, tasks, items)
    return np.arange(items) >= items - correct[:, :, None]


def asked(seed: int, task: int, items: int = ITEMS, samples: int = 40) -> list[tuple[int, int]]:
    """The task and the place of the item that each sample before a task asks; the newest most."""
    random = np.random.default_rng([seed, task])
    on_task = task - 1 - np.minimum(random.geometric(0.3, samples) - 1, task - 2)
    return list(zip(on_task.tolist(), random.integers(items, size=samples).tolist(), strict=True))


def write_kept(
    path: Path,
    method: str = "replay_merge",
    seed: int = 41,
    tasks: int = 6,
    items: int = ITEMS,
    *,
    samples: int = 40,
    of: Sequence[str] = ("items", "samples"),
) -> None:
    """Write a trajectory of Symbol-QA with what it kept; of the samples every fourth is wrong."""
    settings = SETTINGS | {"stream.items_per_task": items}
    write_trajectory(path, method, seed, tasks, items, settings=settings)
    recalled = verdicts(method, seed, tasks, items)
    for row in range(1, tasks + 1) if "items" in of else ():
        each = {task: recalled[row - 1, task - 1].tolist() for task in range(1, row + 1)}
        write_row(path, row, each)
    if "samples" in of:
        template, stream = Template(Template.Config(append_eos=True)), symbol_qa(tasks, items, 42)
        for task in range(2, tasks + 1):
            texts = []
            for number, (on_task, place) in enumerate(asked(seed, task, items, samples)):
                text = template.text(stream.tasks[on_task - 1].items[place])
                texts.append(text if number % 4 else f"{template.asked(text)}\nAnswer: \\boxed{{}}")
            lines = (json.dumps({"tokens": [], "text": text}) + "\n" for text in texts)
            (path / "replay").mkdir(exist_ok=True)
            (path / "replay" / f"task-{task:04d}.jsonl").write_text("".join(lines))
