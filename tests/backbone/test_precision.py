"""Which precision a backbone runs in on a processor."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from holdfast import RunConfig, Trajectory
from holdfast.backbone import load
from holdfast.backbone.model import Backbone


@pytest.mark.parametrize(("time", "fastest"), [(0.5, "bfloat16"), (1.2, "float32"), (9, "float32")])
def test_the_fastest_is_chosen_by_a_probe(
    time: float, fastest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "bfloat16_time", lambda: time)
    for given, wanted in (("fastest", fastest), ("auto", "float32"), ("bfloat16", "bfloat16")):
        config = Backbone.Config(precision=given, device="cpu")  # type: ignore[arg-type]
        assert load.resolved_precision(config) == wanted


def test_the_probe_times_both_precisions(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock of the test's own: a product in bfloat16 takes three times as long."""
    now, clock = [0.0], torch.nn.functional.linear

    def product(states: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        now[0] += 3.0 if states.dtype == torch.bfloat16 else 1.0
        return clock(states, weight)

    monkeypatch.setattr(torch.nn.functional, "linear", product)
    monkeypatch.setattr(load.time, "perf_counter", lambda: now[0])
    load.bfloat16_time.cache_clear()
    assert load.bfloat16_time() == 3.0
    load.bfloat16_time.cache_clear()


def test_a_run_goes_on_in_the_precision_that_it_began_in(
    backbone_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the probe finds later."""
    backbone = {"name": str(backbone_directory), "precision": "fastest"}
    stream, lora = {"tasks": 2, "items_per_task": 2}, {"rank": 2}
    values = {"backbone": backbone, "stream": stream, "lora": lora, "optim": {"epochs": 1}}
    config = RunConfig.of(values, ["evaluation.max_new_tokens=14"])
    for time, tasks in ((9.0, 1), (0.5, 2)):
        monkeypatch.setattr(load, "bfloat16_time", lambda time=time: time)
        trajectory = Trajectory(config, tmp_path / "run")
        trajectory.advance(tasks)
        assert trajectory.config.backbone.precision == "float32"
