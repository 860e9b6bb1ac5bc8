"""Source of streams: sums of two numbers, every question once."""

from __future__ import annotations

from random import Random

from holdfast import Item, Stream, Task
from holdfast.streams import StreamConfig


def sums(config: StreamConfig) -> Stream:
    """Build the whole stream in its own order; Holdfast permutes and shortens it if asked.

    config: ``tasks`` and ``items_per_task`` are None if not given; ``seed``.
    """
    tasks, items = max(config.tasks or 0, 20), config.items_per_task or 8
    pairs = [(one, other) for one in range(10, 100) for other in range(10, 100)]
    Random(config.seed).shuffle(pairs)
    if tasks * items > len(pairs):
        raise ValueError(
            f"there are {len(pairs)} sums, and {tasks} tasks of {items} were asked for"
        )
    return Stream(
        tasks=tuple(
            Task(str(number + 1), tuple(map(_item, pairs[number * items : (number + 1) * items])))
            for number in range(tasks)
        ),
        name="sums",
    )


def _item(pair: tuple[int, int]) -> Item:
    one, other = pair
    return Item(question=f"What is {one} plus {other}?", answer=str(one + other))
