"""On a GPU: the processor's numbers and the same bits twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from holdfast import RunConfig, Trajectory
from tests.exports.exported import configured, facts, family, saved

METHOD = "si_kfac_sd_replay_merge"


def settings(
    folder: Path,
    device: str = "cuda",
    method: str = METHOD,
    lora_dropout: float = 0.05,
    **backbone: Any,
) -> RunConfig:
    base = folder / "base"
    if not base.exists():
        saved(base, family("qwen3"))
    return configured(
        base, facts(folder), method, sampling={"general": 2}, optim={"epochs": 2},
        lora={"dropout": lora_dropout},
        backbone={"device": device, "precision": "bfloat16", **backbone},
    )  # fmt: skip


def state_of(place: Path) -> dict[str, Tensor]:
    return {
        f"{path.name} {key}": tensor
        for path in sorted(place.rglob("*-0002.safetensors"))
        for key, tensor in load_file(path).items()
    }


@pytest.mark.gpu
def test_a_run_is_the_same_to_the_bit(tmp_path: Path) -> None:
    """Continued from what rests on disk, too, and with layers that are computed twice."""
    Trajectory(settings(tmp_path, deterministic=True), tmp_path / "plain").advance(2)
    for tasks in (1, 2):
        config = settings(tmp_path, deterministic=True, checkpointing=True)
        Trajectory(config, tmp_path / "other").advance(tasks)
    plain, other = state_of(tmp_path / "plain"), state_of(tmp_path / "other")
    assert plain.keys() == other.keys() and len(plain) > 20
    assert all(torch.equal(plain[key], other[key]) for key in plain)


@pytest.mark.gpu
def test_the_numbers_are_the_processors(tmp_path: Path) -> None:
    """Of a method that draws nothing: what is drawn on a GPU is different.

    To single precision, in which transformers computes norms and angles whatever the model's is.
    """
    merged = []
    for device in ("cpu", "cuda"):
        config = settings(tmp_path, device, "si_sd_merge", precision="float64", lora_dropout=0.0)
        trajectory = Trajectory(config, tmp_path / device)
        trajectory.advance(2)
        workspace = trajectory.learner().workspace
        assert {one.device.type for one in workspace.parameters().values()} == {device}
        merged.append([dense.cpu() for dense in workspace.dense().values()])
    for on_cpu, on_gpu in zip(*merged, strict=True):
        torch.testing.assert_close(on_cpu, on_gpu, rtol=0, atol=5e-6)
