"""Every sequence once an epoch, and a replay partner for every minibatch."""

from __future__ import annotations

from itertools import chain, islice

import torch
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.seeding import generator
from holdfast.learning.training import current_minibatches, replay_minibatches
from reference.replay import paired_minibatches

COUNTS, SIZES = st.integers(1, 60), st.integers(1, 20)


@given(st.integers(0, 2**31), COUNTS, SIZES)
def test_every_index_once_an_epoch(seed: int, count: int, size: int) -> None:
    minibatches = current_minibatches(seed, 3, 2, count, size)
    assert sorted(chain.from_iterable(minibatches)) == list(range(count))
    assert all(len(minibatch) == size for minibatch in minibatches[:-1])
    assert 1 <= len(minibatches[-1]) <= size


def test_orders_are_named_by_seed_task_and_epoch() -> None:
    def order(*name: int) -> list[list[int]]:
        return current_minibatches(*name, 50, 8)

    assert order(1, 2, 3) == order(1, 2, 3)
    different = [order(1, 2, 3), order(2, 2, 3), order(1, 3, 3), order(1, 2, 4), order(3, 2, 1)]
    assert len({str(minibatches) for minibatches in different}) == len(different)


@given(st.integers(0, 2**31), COUNTS, SIZES, st.integers(1, 4), st.integers(1, 9))
def test_replay_is_the_references(
    seed: int, count: int, size: int, at_once: int, steps: int
) -> None:
    """An exhausted iterator starts over; the last minibatch of a pass may be short."""

    def order(epoch: int, number: int) -> list[int]:
        source = generator(seed, "replay order", 2, epoch, number)
        return torch.randperm(count, generator=source).tolist()

    epochs = [replay_minibatches(seed, 2, epoch, count, size, 1) for epoch in range(2)]
    ours = [minibatch for epoch in epochs for minibatch in islice(epoch, steps)]
    assert ours == paired_minibatches(range(count), size, steps, 2, order)
    # Several at once are the same minibatches, joined.
    taken = ours[:steps]
    joined = islice(replay_minibatches(seed, 2, 0, count, size, at_once), steps // at_once)
    for step, minibatch in enumerate(joined):
        parts = taken[step * at_once : (step + 1) * at_once]
        assert minibatch == list(chain.from_iterable(parts))


def test_passes_and_epochs_are_shuffled_anew() -> None:
    first = list(islice(replay_minibatches(1, 2, 0, 50, 50, 1), 3))
    other = next(replay_minibatches(1, 2, 1, 50, 50, 1))
    assert len({str(order) for order in [*first, other]}) == 4
    assert next(replay_minibatches(1, 2, 0, 50, 50, 1)) == first[0]


def test_replay_is_not_ordered_as_the_task_is() -> None:
    assert next(replay_minibatches(1, 2, 0, 50, 50, 1)) != current_minibatches(1, 2, 0, 50, 50)[0]


def test_replay_orders_are_named_by_seed_task_and_epoch() -> None:
    def order(*name: int) -> list[int]:
        return next(replay_minibatches(*name, 50, 50, 1))

    different = [order(1, 2, 3), order(2, 2, 3), order(1, 3, 3), order(1, 2, 4), order(3, 2, 1)]
    assert len({str(order) for order in different}) == len(different)
