"""In a loop of one's own: what is drawn, kept and counted is named by all that decides it."""

from __future__ import annotations

import pytest
import torch

from holdfast.integrations import Anchored
from holdfast.integrations.boundary import AT_ONCE, samples_before, written_by
from holdfast.integrations.task import Task
from tests.integrations.test_anchored import GENERAL, SEED, anchored_of, peft_model
from tests.integrations.test_unusual import anchored_model, learn
from tests.tiny import short_sequences

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


def test_every_earlier_item_counts() -> None:
    """Not those of the last task alone."""
    anchored = anchored_of(peft_model(), ("kfac",), "shared")
    for number, count in enumerate((3, 2, 4), start=1):
        anchored.begin(short_sequences(count, seed=number))
        anchored.end()
    anchored.begin(short_sequences(5, seed=4))
    assert anchored.past_items == 9
    assert float(anchored.states["kfac"]["ratio"]) == (9 + GENERAL) / 5


def test_samples_are_named_by_task_and_batch() -> None:
    """More than are drawn at once are not the first ones again, nor those before another task."""
    sampling = {"samples": 2 * AT_ONCE, "max_new_tokens": 4}
    anchored = Anchored(peft_model(), anchors=["replay"], sampling=sampling, begin_with=[7])
    anchored.stop_tokens = set()
    second, third = (samples_before(anchored, task)[0] for task in (2, 3))
    assert samples_before(anchored, 2)[0] == second != third
    assert second[:AT_ONCE] != second[AT_ONCE:]


def test_orders_of_replay_are_named_by_task_and_pass() -> None:
    second, third = (Task(number, {}, [[1, 2]] * 20, "") for number in (2, 3))
    orders = [task.next_replay(SEED, 20) for task in (second, second, third)]
    assert all(sorted(order) == list(range(20)) for order in orders)
    assert len({str(order) for order in orders}) == 3


def test_a_row_that_is_packed_otherwise_is_another_row() -> None:
    """Its states are not those that were kept of the same tokens at other positions."""
    anchored = anchored_model("sd")
    learn(anchored, 1)
    anchored.end()
    anchored.begin(short_sequences(2, seed=2))
    ids = torch.tensor([[5, 6, 7, 8, 9, 10]])
    for positions in ([0, 1, 2, 0, 1, 2], [0, 1, 0, 1, 2, 3]):
        packed = torch.tensor([positions])
        anchored.loss({"input_ids": ids, "labels": ids, "position_ids": packed})
        assert abs(float(anchored.terms["sd"])) < 1e-6


def test_no_token_that_was_given_is_one_that_the_model_wrote() -> None:
    """Of general text that is what one begins with and the random token."""
    anchored = anchored_of(peft_model(), ("kfac",), "shared")
    assert anchored.begin_with == anchored.given_begin == [7]
    written = written_by(anchored, [[7, 5, 6]], [[7, 3, 4, 5]])
    assert written.labels == [[-100, 5, 6], [-100, -100, 4, 5]]
