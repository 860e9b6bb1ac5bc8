"""The time is counted operations: they are those that torch counts, and a task takes about it."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.prediction_error import SMALL, observed, predicted
from holdfast.learning.progress import Stopwatch
from holdfast.prediction.rates import Rates

# Beside torch's own count, which has the padding and the masked half of attention too.
COUNT = 0.15
# A stated factor, either way: another program may have the processor for a while.
TIME = 4.0


# Both ways of a branch that is never merged, and layers that are computed twice.
COUNTED = {"si_replay_olora": ("backbone.checkpointing=true",), "kfac_sd_replay": ()}


@pytest.mark.parametrize("method", COUNTED)
def test_operations_by_phase(method: str) -> None:
    found: dict[str, float] = {}

    class Counting(Stopwatch):
        def phase(self, name: str) -> Any:
            counter = FlopCounterMode(display=False, custom_mapping=IN_PLACE)
            return Counted(name, counter, found)

    with patch("holdfast.learning.boundary.Stopwatch", Counting):
        observed("embedded", method, (*SMALL, *COUNTED[method]), counted=False)
    times = predicted("embedded", method, (*SMALL, *COUNTED[method])).times
    assert times is not None
    counted = times.counted(2)
    counted.pop("evaluation")  # it runs beside the thread that writes
    for phase, work in counted.items():
        assert work.flops == pytest.approx(found[phase], rel=COUNT), phase


class Counted:
    """One phase of the last task, counted by torch."""

    def __init__(self, name: str, counter: Any, found: dict[str, float]) -> None:
        self._name, self._counter, self._found = name, counter, found

    def __enter__(self) -> None:
        self._counter.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._counter.__exit__(*error)
        self._found[self._name] = self._counter.get_total_flops()


def _addmm(_: Any, left: Any, right: Any, **__: Any) -> int:
    return int(2 * left[0] * left[1] * right[1])


IN_PLACE = {torch.ops.aten.addmm_: _addmm}


def test_a_task_takes_about_the_time_that_is_said() -> None:
    settings = (*SMALL, "optim.epochs=2")
    found = observed("embedded", "si_sd_replay_merge", settings, counted=False)
    times = predicted("embedded", "si_sd_replay_merge", settings).times
    assert times is not None
    said = times.of_task(2)
    taken = sum(found["seconds"][phase] for phase in said)
    assert 1 / TIME < sum(said.values()) / taken < TIME


def test_a_stream_is_its_tasks_and_its_rows() -> None:
    """Ten tasks: the first without a past, nine with one, and rows that grow."""
    settings = (*SMALL, "stream.tasks=10")
    said = predicted("embedded", "si_sd_replay_merge", settings)
    slow, fast = (
        said.__class__(
            said.config, said.shape, said.lengths, said.machine.__class__("cpu", rates=rates)
        ).times
        for rates in (Rates(1e9, 1e9), Rates(1e12, 1e12))
    )
    assert slow is not None and fast is not None
    first, later = (sum(slow.of_task(task).values()) for task in (1, 10))
    assert first < later < slow.whole() < 10 * later
    assert fast.whole() < slow.whole() / 20
    # The moments of layers and passes do not shrink with the rates.
    assert fast.whole() > slow.whole() / 1000
