"""Every benchmark at its smallest: what it compares is the same work. No time is judged."""

from __future__ import annotations

import json
import os
import statistics
from pathlib import Path

import pytest
import torch

from benchmarks import sampling, training_step, twins
from benchmarks.pairing import Measurement, Plan, alternate
from benchmarks.record import machine, markdown, write
from benchmarks.twins import METHODS
from holdfast.model.backbone import Backbone
from reference import adapters
from tests.tiny import byte_tokenizer, exact_backbone, tiny_llama


@pytest.mark.parametrize("method", [*METHODS, "kfac_merge"])
def test_a_step_is_the_same_on_both_sides(method: str) -> None:
    config = training_step.step_configuration(method)
    values = config.model_dump() | {
        "lora": {"rank": 2, "alpha": 4, "dropout": 0.0},
        "sampling": {**config.sampling.model_dump(), "samples": 5, "max_new_tokens": 6},
        "si": {"strength": 0.7},
    }
    steps = training_step.second_task(type(config).of(values), 8, exact_backbone)
    ours, theirs = steps.engine(), steps.reference()
    assert steps.count == len(theirs) == 1
    for name, engine_name in {
        "sft": "sft",
        "replay": "replay",
        "function": "sd",
        "kfac": "kfac",
    }.items():
        if name in theirs[0]:
            assert ours[0][engine_name] == pytest.approx(theirs[0][name], rel=1e-8)
    assert ("replay" in theirs[0]) == ("replay" in method)
    learner = steps.twins.learner
    live = adapters.factors(steps.student)
    for name, layer in learner.workspace.layers.items():
        for factor, other in zip((layer.lora_A, layer.lora_B), live[name], strict=True):
            torch.testing.assert_close(factor.detach(), other.detach(), rtol=1e-8, atol=1e-10)
            torch.testing.assert_close(factor.grad, other.grad, rtol=1e-7, atol=1e-12)


def test_both_sides_of_every_round_are_timed_in_turn() -> None:
    heard: list[str] = []
    seconds = alternate(2, lambda: heard.append("a"), lambda: heard.append("b"))
    assert "".join(heard) == "ab" + "ab" + "ba"
    assert [len(side) for side in seconds] == [2, 2]


def test_the_ratio_is_the_median_of_the_rounds() -> None:
    measurement = Measurement("step", "s", [1.0, 2.0, 4.0], [3.0, 4.0, 40.0])
    assert measurement.ratio == 3.0
    assert Measurement("alone", "s", [1.0]).ratio is None


def test_the_machine_is_described_where_affinity_is_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)  # as on macOS
    assert machine()["cores"] == os.cpu_count()


def wide_backbone() -> Backbone:
    """As wide as the paper's rank asks for."""
    return Backbone(tiny_llama(layers=1, width=64), byte_tokenizer())


@pytest.mark.parametrize("module", [training_step, sampling])
def test_what_is_written_is_what_was_measured(
    module, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of sampling, counts, lengths and vocabulary are asserted where sequences are drawn."""
    if module is training_step:  # the other has the embedded backbone, as by default
        monkeypatch.setattr(twins, "load_backbone", lambda _: wide_backbone())
    report = module.measure(Plan(rounds=1, smoke=True))
    write(tmp_path, report.name, [report])
    (values,) = json.loads((tmp_path / f"{report.name}.json").read_text())["reports"]
    assert values["measurements"]
    for measurement in values["measurements"]:
        ratios = [
            b / a for a, b in zip(measurement["engine"], measurement["reference"], strict=True)
        ]
        assert measurement["ratio"] == statistics.median(ratios) > 0
    assert (tmp_path / f"{report.name}.md").read_text() == markdown([report]) + "\n"
