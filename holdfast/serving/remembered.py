"""What a memory remembers, for the page and for programs."""

from __future__ import annotations

import math
from typing import Any

from holdfast.memory.memory import Memory
from holdfast.results import half_life, retention_by_age
from holdfast.streams.batches import newest


def remembered(memory: Memory) -> dict[str, Any]:
    """All facts with the batch that taught them and whether they are recalled; recall by age.

    ``unit``: what is learned together; ``facts``: newest first, each with ``question``,
    ``answer``, ``batch`` (a number from 1), ``batch_name`` and ``recalled``; ``batches``: how many
    are learned; ``retention``: recall of a batch when 0, 1, ... later ones are learned, None where
    it was not measured, an answer that was corrected since counting as forgotten; ``half_life``:
    the first age with less than half of it, or None.
    Source of retention and half-life: sec. res-time.
    """
    name = memory.directory.resolve().name
    told: dict[str, Any] = {"memory": name, "unit": "batch", "batches": memory.horizon}
    if not memory.horizon:
        return {**told, "facts": [], "retention": [], "half_life": None}
    learned = memory.trajectory.stream.tasks[: memory.horizon]
    forgotten = set(memory.forgotten())
    taught_in = {item: place for place, task in enumerate(learned, 1) for item in task.items}
    facts: list[dict[str, Any]] = [
        {
            "question": item.question,
            "answer": item.answer,
            "batch": taught_in[item],
            "batch_name": learned[taught_in[item] - 1].name,
            "recalled": item not in forgotten,
        }
        for item in newest(learned)
    ]
    matrix = memory.trajectory.matrix
    shares = [None if math.isnan(share) else float(share) for share in retention_by_age(matrix)]
    newest_first = sorted(facts, key=lambda fact: -fact["batch"])
    return {**told, "facts": newest_first, "retention": shares, "half_life": half_life(matrix)}
