"""What a run holds in memory does not grow with the tasks that it has learned."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from holdfast import RunConfig, Trajectory
from holdfast.learning.progress import Progress
from holdfast.results import RecallMatrix


class Tensors(Progress):
    """The bytes of all tensors after each task."""

    def __init__(self) -> None:
        self.held: list[int] = []

    def task_done(self, task: int, horizon: int, matrix: RecallMatrix) -> None:
        gc.collect()
        tensors = [item for item in gc.get_objects() if issubclass(type(item), torch.Tensor)]
        storages = {tensor.untyped_storage().data_ptr(): tensor for tensor in tensors}
        self.held.append(sum(storage.untyped_storage().nbytes() for storage in storages.values()))


@pytest.mark.usefixtures("only_new_objects")
@pytest.mark.parametrize("source", ["own", "written"])
def test_no_tensor_outlives_its_task(
    config: Callable[..., RunConfig], source: str, tmp_path: Path
) -> None:
    tensors = Tensors()
    chosen = config("si_online_ewc_kfac_sd_replay_merge", kfac={"source": source})
    Trajectory(chosen, tmp_path / "run").advance(progress=tensors)
    before, after = tensors.held[1], tensors.held[3]
    # Samples of other lengths have states of other sizes; a graph that stays is many times larger.
    assert after - before < before / 100, tensors.held
