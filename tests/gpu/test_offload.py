"""What rests in host memory: the same bits, and no step waits for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from holdfast import RunConfig, Trajectory
from holdfast.anchors.kfac import KroneckerFisher
from holdfast.anchors.synaptic_intelligence import SynapticIntelligence
from holdfast.learning import training
from holdfast.learning.progress import Progress
from tests.exports.exported import configured, facts, family, saved
from tests.gpu.pretended import OnDevice, Pretended

METHOD = "si_kfac_sd_replay_merge"


def settings(folder: Path, device: str = "cuda", **backbone: Any) -> RunConfig:
    base = folder / "base"
    if not base.exists():
        saved(base, family("qwen3"))
    return configured(
        base, facts(folder), METHOD, sampling={"general": 2}, optim={"epochs": 2},
        backbone={"device": device, "precision": "bfloat16", **backbone},
    )  # fmt: skip


def state_of(place: Path) -> dict[str, Tensor]:
    return {
        f"{path.name} {key}": tensor
        for path in sorted(place.rglob("*-0002.safetensors"))
        for key, tensor in load_file(path).items()
    }


def test_a_run_is_the_same_to_the_bit(gpu: Pretended, tmp_path: Path) -> None:
    """Continued from what rests on disk, too, and with layers that are computed twice."""
    Trajectory(settings(tmp_path), tmp_path / "plain").advance(2)
    for tasks in (1, 2):
        config = settings(tmp_path, offload=True, checkpointing=True)
        Trajectory(config, tmp_path / "other").advance(tasks)
    plain, other = state_of(tmp_path / "plain"), state_of(tmp_path / "other")
    assert plain.keys() == other.keys() and len(plain) > 20
    assert all(torch.equal(plain[key], other[key]) for key in plain)


@pytest.mark.parametrize("offload", [False, True])
def test_what_is_needed_at_moments_rests_between_them(
    gpu: Pretended, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offload: bool
) -> None:
    """During a step only its own minibatch of the teacher's states is on the device."""
    resting: dict[str, set[bool]] = {}
    waited = []
    accumulate, take = training._Step._accumulate, training._Step.take

    def look(name: str, *tensors: Tensor | None) -> None:
        found = {isinstance(one, OnDevice) for one in tensors if one is not None}
        resting.setdefault(name, set()).update(found)

    def accumulated(self: Any, *given: Any) -> Any:
        for _, anchor in self._learner.anchors:
            if isinstance(anchor, KroneckerFisher):
                for name, known in (("general", anchor.general), ("learned", anchor.learned)):
                    look(name, *(one.outputs.dense() for one in (known or {}).values()))
                look("held", *(one.outputs.dense() for one in (anchor.held or {}).values()))
            if isinstance(anchor, SynapticIntelligence):
                look("start", anchor._start)
                look("importance", anchor.importance)
        for states in (self._past.replay_states, self._past.current_states):
            look("teacher", *(() if states is None else (states.states,)))
        for state in self._optimizer._adamw.state.values():
            look("moments", state["exp_avg"], state["exp_avg_sq"])
        return accumulate(self, *given)

    def taken(self: Any, window: Any) -> Any:
        before = gpu.waits
        values = take(self, window)
        waited.append(gpu.waits - before)
        return values

    monkeypatch.setattr(training._Step, "_accumulate", accumulated)
    monkeypatch.setattr(training._Step, "take", taken)
    Trajectory(settings(tmp_path, offload=offload), tmp_path / "run").advance(2)
    rested = ("general", "learned", "start", "teacher", "moments")
    expected = {"held": {True}, "importance": {True}}
    assert resting == expected | {name: {not offload} for name in rested}
    assert set(waited) == {0}


def test_on_a_processor_it_says_that_it_does_nothing(tmp_path: Path) -> None:
    told = []

    class Listening(Progress):
        def event(self, text: str) -> None:
            told.append(text)

    config = settings(tmp_path, device="cpu", offload=True, precision="float32")
    Trajectory(config, tmp_path / "run").advance(1, Listening())
    assert told == ["backbone.offload: does nothing without a GPU, all is in host memory"]


def test_quantized_matrices_are_merged_and_read_again(gpu: Pretended, tmp_path: Path) -> None:
    """Their masters lie on the host; what is made of them, on the device."""
    config = settings(tmp_path, quantization="nf4")
    for tasks in (1, 2):
        Trajectory(config, tmp_path / "run").advance(tasks)
    ran = Trajectory(config, tmp_path / "run")
    adapters = ran.learner().adapters
    for name, layer in adapters.layers.items():
        assert isinstance(layer.base.packed, OnDevice)
        assert not isinstance(adapters.dense(name), OnDevice)
        assert (layer.base.dense().cpu().float() - adapters.dense(name)).abs().max() < 0.5
