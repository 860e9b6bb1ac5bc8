"""The order in which a stream's tasks arrive."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from holdfast.streams.stream import Stream


def task_order(count: int, seed: int) -> list[int]:
    """A permutation of ``range(count)``: position -> index in the stream as it was stored.

    It is drawn by ``random.sample``, not ``shuffle``, which draws another one: published seeds
    must give the published orders.
    """
    return Random(seed).sample(range(count), count)


def reorder(stream: Stream, order_seed: int | None) -> Stream:
    """The whole stream with its tasks permuted; ``order_seed`` None leaves them as they are.

    Take ``.first(tasks)`` after reordering, never before: the permutation is over all tasks, so
    that a shorter stream is a prefix of a longer one under the same ``order_seed``.
    """
    if order_seed is None:
        return stream
    order = task_order(len(stream.tasks), order_seed)
    return replace(stream, tasks=tuple(stream.tasks[index] for index in order))
