"""The order in which a stream's tasks arrive."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from holdfast.streams.stream import Stream


def task_order(count: int, seed: int) -> list[int]:
    """A permutation of ``range(count)``: position -> index in the stream as it was stored.

    ``random.sample`` is kept, not ``shuffle``: the two differ, and orders that were published
    as a seed must be recovered.
    """
    return Random(seed).sample(range(count), count)


def reorder(stream: Stream, order_seed: int | None) -> Stream:
    """The whole stream with its tasks permuted; None leaves them as they are.

    Take ``.first(tasks)`` of the result, never the other way round: the permutation is over all
    tasks, so a shorter stream is a prefix of a longer one under the same ``order_seed``.
    """
    if order_seed is None:
        return stream
    order = task_order(len(stream.tasks), order_seed)
    return replace(stream, tasks=tuple(stream.tasks[index] for index in order))
